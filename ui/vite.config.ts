import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { NOTICE } from "./src/notice";

// The page that the server sends: files with hashes in their names, next to the Python code that serves them.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: { outDir: "../src/glassformer/serve/page", emptyOutDir: true, target: "es2022", assetsInlineLimit: 0, rolldownOptions: { output: { postBanner: `/*! Of parts of this script:\n\n${NOTICE}*/` } } },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"], testTimeout: 60_000 }, // also on a busy machine,
});
