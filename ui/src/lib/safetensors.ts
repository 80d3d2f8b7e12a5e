// The file of a trace (glassformer/stored.py): eight bytes of length, a JSON header, then the numbers.

export interface Tensor {
  name: string;
  shape: number[];
  data: Float32Array;
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

const HEADER = 8;

/** The tensors of a safetensors file by name; those of another format than fp32 are refused by name. */
export function parse(bytes: ArrayBuffer): Map<string, Tensor> {
  const view = new DataView(bytes);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, HEADER, length))) as Record<string, Entry>;
  const found = new Map<string, Tensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (entry.dtype !== "F32") throw new Error(`${name}: numbers of type ${entry.dtype}`);
    const [first, last] = entry.data_offsets;
    // A copy: the header's length is any number, and a Float32Array must begin at a multiple of four.
    const data = new Float32Array(bytes.slice(HEADER + length + first, HEADER + length + last));
    found.set(name, { name, shape: entry.shape, data });
  }
  return found;
}
