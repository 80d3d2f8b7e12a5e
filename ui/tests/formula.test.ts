import { expect, test } from "vitest";
import { pieces } from "../src/lib/formula";

const written = (text: string) => pieces(text).map((one) => (one.as ? `<${one.as}>${one.text}</${one.as}>` : one.text)).join("");

test("indices of formulas are lowered and raised, in running text too", () => {
  expect(written("‖Σ_h w_ts^h · v_s^h W_O^h‖입니다")).toBe("‖Σ<sub>h</sub> w<sub>ts</sub><sup>h</sup> · v<sub>s</sub><sup>h</sup> W<sub>O</sub><sup>h</sup>‖입니다");
  expect(written("a_l과 b_l은")).toBe("a<sub>l</sub>과 b<sub>l</sub>은");
  expect(written("α_ij = softmax_j(e_ij)")).toBe("α<sub>ij</sub> = softmax<sub>j</sub>(e<sub>ij</sub>)");
  expect(written("f_t ⊙ c_{t−1} − α_{i−1,k}")).toBe("f<sub>t</sub> ⊙ c<sub>t−1</sub> − α<sub>i−1,k</sub>");
  expect(written("[h→_t; h←_t] W_O, ‖∂y_t/∂x_s‖_F, q_i·k_j / √d_k")).toBe("[h→<sub>t</sub>; h←<sub>t</sub>] W<sub>O</sub>, ‖∂y<sub>t</sub>/∂x<sub>s</sub>‖<sub>F</sub>, q<sub>i</sub>·k<sub>j</sub> / √d<sub>k</sub>");
  expect(written("b_k + Σ_uvc W_uvck x_{i+u,j+v,c}")).toBe("b<sub>k</sub> + Σ<sub>uvc</sub> W<sub>uvck</sub> x<sub>i+u,j+v,c</sub>");
  expect(written("exp(logit_v / T)")).toBe("exp(logit<sub>v</sub> / T)");
});

test("names of code stay as they are, and nothing is lost", () => {
  for (const text of ["blocks.0.resid_in", "max_new_tokens", "x_layer", "__init__", "a_", "_", "", "x^", "2_000", "<b>_x</b>"]) expect(written(text)).toBe(text);
});
