// A view of the widget: the page in a frame of its own, and a relay between it and the kernel.
//
// The frame is sandboxed and has no origin, so it shares neither styles nor an address nor a storage with the notebook or
// with another frame, and each has its own state. What it asks goes through a port of its own to this file, and from here
// as a message of the widget to the kernel (bridge.py).

const PAGE = "PAGE";
const KERNEL = "KERNEL";

/** Whether the notebook is dark around an element: by the first background that can be seen behind it. */
function theme(element) {
  for (let one = element; one; one = one.parentElement) {
    const [red, green, blue, alpha = 1] = (getComputedStyle(one).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "Glassformer";
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.setAttribute("allow", "clipboard-write *");
  frame.style.cssText = "display: block; width: 100%; height: 44rem; min-height: 12rem; border: 1px solid #8884; border-radius: 8px; box-sizing: border-box; resize: vertical";
  let port = null;
  let view = "";
  let place = "";
  let shade = "";
  let [live, heard] = [true, false]; // whether the frame asks the kernel; whether that has ever answered here

  const leave = () => {
    if (!port) return;
    port.close();
    port = null;
    model.send({ view, leave: true });
  };
  const piece = (message, buffers) => {
    if (!port || message?.view !== view) return; // another view's
    heard = true;
    if (!live) return turn(true);
    const bytes = buffers?.[0] ? new Uint8Array(buffers[0].buffer, buffers[0].byteOffset, buffers[0].byteLength).slice() : new Uint8Array();
    port.postMessage({ piece: message, bytes }, [bytes.buffer]);
  };
  const look = () => {
    const now = theme(el);
    if (port && now !== shade) port.postMessage({ theme: (shade = now) });
  };
  // As long as nothing was heard of the kernel, which may run the cells below or not exist any more, a saved page of the
  // run stands in its place.
  const turn = (to) => {
    live = to;
    frame.srcdoc = live ? PAGE : PAGE.replace(KERNEL, () => model.get("kept"));
  };
  // Also where a notebook took the frame out of its page and put it in again: then the page begins anew, where it was.
  frame.onload = () => {
    if (!live) return;
    leave();
    const { port1, port2 } = new MessageChannel();
    port = port1;
    view = [...crypto.getRandomValues(new Uint32Array(3))].map((one) => one.toString(36)).join("");
    port.onmessage = ({ data }) => {
      if (data.place !== undefined) place = data.place;
      else if (data.silent === undefined) model.send({ ...data, view });
      else if (!heard) turn(false);
    };
    shade = theme(el);
    const greeting = { run: JSON.parse(model.get("run")), lang: model.get("lang"), place, theme: shade };
    frame.contentWindow.postMessage(greeting, "*", [port2]); // it has no origin that could be named
  };
  const seen = new MutationObserver(look);
  for (const one of [document.documentElement, document.body]) seen.observe(one, { attributes: true });
  model.on("msg:custom", piece);
  frame.srcdoc = PAGE;
  el.append(frame);
  // What stands before it for the time when it is gone (shown.py), in the same output of the notebook. It is put into its
  // page at about the same time as this.
  const again = () => {
    for (const one of el.closest(".jp-OutputArea, .output")?.querySelectorAll(".glassformer-again") ?? []) one.hidden = true;
  };
  requestAnimationFrame(again);
  const late = setTimeout(again, 1000);

  return () => {
    clearTimeout(late);
    seen.disconnect();
    model.off("msg:custom", piece);
    leave();
    frame.remove();
  };
}

export default { render };
