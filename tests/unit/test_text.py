"""Sources of text: what is read, in which order and pieces, and what is refused with which way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.text import documents, pieces, text_files, training_part
from glassformer.errors import InputError
from glassformer.files import replacing

TEXT = "첫 줄\r\n  둘째 줄\n\n\n세째 😀 줄 that is rather long\nend"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 40))
def test_pieces_join_to_the_exact_text(tmp_path_factory, text, block):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    found = list(pieces(path, block))
    assert "".join(found) == text.removeprefix("\ufeff")
    assert all(0 < len(piece) <= block for piece in found)


def test_pieces_end_between_lines_where_they_can(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode())
    assert list(pieces(path, 20)) == ["첫 줄\r\n  둘째 줄\n\n\n", "세째 😀 줄 that is", " rather long\nend"]
    path.write_bytes(b"ab\ncd\n  ef gh")
    assert list(pieces(path, 8)) == ["ab\n", "cd\n", "  ef gh"], "an indented line stays with the one before it"
    path.write_bytes(b"\xef\xbb\xbf" + b"x" * 25 + b"\n")
    assert list(pieces(path, 10)) == ["x" * 10, "x" * 10, "x" * 5 + "\n"]


def test_characters_across_the_read_border_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.data.text._READ_BYTES", 2)
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode())
    assert "".join(pieces(path)) == TEXT
    path.write_bytes(TEXT.encode()[:-5] + b"\xff" + b"rest")
    with pytest.raises(InputError, match=f"offset {len(TEXT.encode()) - 5}"):
        list(pieces(path))


def test_a_folder_is_read_in_order_and_only_its_text(tmp_path):
    for name in ("b/2.md", "b/10.TXT", "a.txt", "c.png", ".hidden/x.txt", ".x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert [path.relative_to(tmp_path).as_posix() for path in text_files(tmp_path)] == ["a.txt", "b/10.TXT", "b/2.md"]
    assert "".join(documents(tmp_path)) == "a.txtb/10.TXTb/2.md"
    assert text_files(tmp_path / "c.png") == [tmp_path / "c.png"], "a file that was named is taken as text"


@pytest.mark.parametrize("most", [0, 1, 4, 5, 6, 9, 10, 11])
def test_the_first_characters_of_all_files(tmp_path, most):
    for name, text in (("a.txt", "12345"), ("b.txt", "67890")):
        (tmp_path / name).write_text(text)
    assert "".join(documents(tmp_path, 2, most)) == "1234567890"[:most]
    assert training_part(10, 0.1) == 9 and training_part(10, 0) == 10


def test_what_is_not_there_is_named_with_its_neighbours(tmp_path):
    (tmp_path / "corpus.txt").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match=r"no such file or folder; .*did you mean corpus\.txt"):
        text_files(tmp_path / "corpsu.txt")
    with pytest.raises(InputError, match=r"no text files .* \.txt, \.text"):
        (tmp_path / "pictures").mkdir()
        text_files(tmp_path / "pictures")


def test_empty_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbf")
    for source in (tmp_path, tmp_path / "a.txt", tmp_path / "b.txt"):
        with pytest.raises(InputError, match="empty"):
            list(documents(source))


KOREAN = "plain start\n안녕하세요, 고양이가 생선을 먹었다.\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (KOREAN.encode("cp949"), r"offset 12\).*CP949.*iconv -f cp949 -t utf-8 a\.txt"),
        (KOREAN.encode("utf-16"), r"offset 0\).*UTF-16.*iconv -f utf-16"),
        (KOREAN.encode("utf-32"), r"offset 0\).*UTF-32.*iconv -f utf-32"),
        ("déjà vu".encode("latin-1"), r"offset 1\).*iconv -f ENCODING"),
        (b"ab\x00\x01\xff", r"offset 4\).*not a text file"),
        ("각".encode()[:2], r"offset 0\)"),
        (b"\xef\xbb\xbfab\xff", r"offset 5\)"),
    ],
)
def test_other_encodings_are_named_with_the_way_out(tmp_path, data, message):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        list(documents(path))


def test_replacing_keeps_the_old_file_when_writing_fails(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
