import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const NOTICE = "../LICENSES/MIT-Svelte.txt"; // seen from here

/** The notice that goes with the code of others, before the script, so that a saved page carries it too. */
function noticed(): Plugin {
  let root = "";
  return {
    name: "noticed",
    configResolved: (config) => void (root = config.root),
    async generateBundle(_, files) {
      const notice = await this.fs.readFile(`${root}/${NOTICE}`, { encoding: "utf8" });
      for (const file of Object.values(files)) {
        if (file.type !== "chunk") continue;
        const others = Object.entries(file.modules).filter(([, one]) => one.renderedLength > 0);
        for (const [path] of others) {
          const name = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1];
          if (name && !notice.includes(`\n${name}: Copyright`)) this.error(`${name} is part of the page; name it and its licence in LICENSES and NOTICE`);
        }
        file.code = `/*!\n${notice}*/\n${file.code}`;
      }
    },
  };
}

// The page that the server sends: files with hashes in their names, next to the Python code that serves them.
export default defineConfig({
  base: "./",
  plugins: [svelte(), noticed()],
  build: { outDir: "../src/glassformer/serve/page", emptyOutDir: true, target: "es2022", assetsInlineLimit: 0 },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"], testTimeout: 60_000 }, // also on a busy machine,
});
