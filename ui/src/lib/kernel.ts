// In a notebook the page stands in a frame of its own and asks the kernel: a request goes through a port to the widget
// around the frame (notebook/relay.js), which passes it on, and the pieces of its answer come back the same way. What is
// asked and answered is what the server would be asked and answer, so everything above stream.ts is the same.

import type { PageRun } from "./protocol";
import type { Send } from "./stream";

/** What the widget says first: the run that it shows, and where the reader was in it. */
interface Greeting {
  run: PageRun;
  place: string; // as behind # in an address; "" at first
  lang: "en" | "ko" | "";
  theme: "light" | "dark";
}

/** A piece of an answer: the first has no bytes, the last says that no more come. */
interface Piece {
  of: number;
  status: number;
  more: boolean;
}

const PATIENCE_MS = 3000; // a kernel that says nothing for so long runs a cell, or does not run any more

/** The greeting of the widget, and the port through which it is spoken to. */
export function greeted(): Promise<[Greeting, MessagePort]> {
  return new Promise((found) => {
    addEventListener("message", function hear({ source, data, ports }: MessageEvent<Greeting>) {
      if (source !== parent || !ports[0]) return;
      removeEventListener("message", hear as EventListener);
      found([data, ports[0]]);
    });
  });
}

/** Requests through a port. silent: is told whether an answer is long overdue; theme: when the notebook changes its. */
export function kernel(port: MessagePort, silent: (is: boolean) => void, theme: (now: "light" | "dark") => void): Send {
  const open = new Map<number, (piece: Piece, bytes: Uint8Array) => void>();
  const unanswered = new Map<number, ReturnType<typeof setTimeout>>();
  let count = 0;

  const answered = (id: number) => {
    clearTimeout(unanswered.get(id));
    unanswered.delete(id);
  };
  port.onmessage = ({ data }: MessageEvent<{ piece: Piece; bytes: Uint8Array } | { theme: "light" | "dark" }>) => {
    if ("theme" in data) return theme(data.theme);
    silent(false);
    answered(data.piece.of);
    open.get(data.piece.of)?.(data.piece, data.bytes);
  };

  return (path, init) =>
    new Promise((found, failed) => {
      const id = ++count;
      let body: ReadableStreamDefaultController<Uint8Array> | undefined;
      const over = () => {
        answered(id);
        open.delete(id);
        init.signal?.removeEventListener("abort", abort);
      };
      const stop = () => {
        over();
        port.postMessage({ stop: id });
      };
      const abort = () => {
        const error = new DOMException("nobody waits any more", "AbortError");
        stop();
        failed(error);
        body?.error(error);
      };
      if (init.signal?.aborted) return failed(new DOMException("nobody waits any more", "AbortError"));
      init.signal?.addEventListener("abort", abort);
      open.set(id, (piece, bytes) => {
        if (!body) found(new Response(new ReadableStream<Uint8Array>({ start: (control) => void (body = control), cancel: stop }), { status: piece.status }));
        if (bytes.length) body!.enqueue(bytes);
        if (piece.more) return;
        over();
        body!.close();
      });
      unanswered.set(id, setTimeout(() => silent(true), PATIENCE_MS));
      port.postMessage({ ask: id, method: init.method ?? "GET", path, headers: init.headers ?? {}, body: init.body ?? "" });
    });
}
