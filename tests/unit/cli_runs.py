"""The command line called from tests, with a tiny model to work on."""

from sheet_models import SPECS, loaded

from glassformer.checkpoint import save_model
from glassformer.cli import main

KOREAN = "고양이가 생선을 먹었다"
VERBS = [
    "explore",
    "trace",
    "explain",
    "generate",
    "train",
    "evaluate",
    "influence",
    "embed",
    "classify",
    "transcribe",
    "check",
    "models",
    "pull",
    "export",
]


def write(folder, name="rope", method="bpe"):
    made = loaded(SPECS[name], method)
    save_model(made.model, folder, {"summary": "tiny"})
    made.tokenizer.save(folder / "tokenizer.json")
    return str(folder)


def run(capsys, *arguments):
    """(exit status, stdout, stderr)"""
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def refused(capsys, *arguments, lang="en"):
    """The one line on stderr of a mistake."""
    status, out, err = run(capsys, *arguments, *(["--lang", lang] if "--lang" not in arguments else []))
    assert (status, out) == (2, ""), (status, out, err)
    assert err.startswith("glassformer: ") and err.count("\n") == 1 and "Traceback" not in err
    return err
