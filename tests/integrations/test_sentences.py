"""The sentences of the study with the Hugging Face Trainer, and its table."""

import sys
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("scipy")
from pyarrow import parquet as files  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import sentences  # noqa: E402
import study_table  # noqa: E402

TEXTS = [f"sentence number {n}" for n in range(30)]
CLASSES = [n % 3 for n in range(30)]


def write(folder, name="some.parquet", **columns):
    folder.mkdir(exist_ok=True)
    files.write_table(pa.table(columns), folder / name)
    return folder


def read(folder, texts=None, label=None, most=5):
    return sentences.parquet(folder, texts, label, most)


def test_a_folder_of_one_file_is_divided_and_nothing_is_in_both_parts(tmp_path):
    found = read(write(tmp_path / "mine", text=TEXTS, label=CLASSES))
    assert (found.name, found.classes, len(found.test)) == ("mine", ("0", "1", "2"), 5)
    assert sorted(found.train + found.test) == sorted(
        ((text,), label) for text, label in zip(TEXTS, CLASSES, strict=True)
    )


def test_a_folder_that_is_divided_stays_so_and_classes_may_have_names(tmp_path):
    names = [("good", "bad")[n % 2] for n in range(20)]
    folder = write(tmp_path, "train-0.parquet", sentence=TEXTS[:20], sentiment=names)
    write(folder, "test-0.parquet", sentence=TEXTS[20:], sentiment=names[:10])
    found = read(folder, most=100)
    assert found.classes == ("bad", "good")
    assert {text for (text,), _ in found.train} == set(TEXTS[:20])
    assert {text for (text,), _ in found.test} == set(TEXTS[20:])


def test_a_test_split_without_labels_gives_way_to_the_validation_split(tmp_path):
    for name in ("train", "validation", "test"):
        label = [-1] * 30 if name == "test" else CLASSES
        write(tmp_path, f"{name}.parquet", text=[f"{name} {t}" for t in TEXTS], label=label)
    assert {text.split()[0] for (text,), _ in read(tmp_path).test} == {"validation"}


def test_pairs_of_sentences_are_two_columns_of_text(tmp_path):
    write(tmp_path, first=TEXTS, second=TEXTS[::-1], label=CLASSES, idx=list(range(30)))
    assert all(len(texts) == 2 for texts, _ in read(tmp_path).train)
    one = read(tmp_path, texts=["second"], label="label")
    assert all(len(texts) == 1 for texts, _ in one.train)


def test_a_sentence_that_comes_twice_is_in_one_part_only(tmp_path):
    found = read(write(tmp_path, text=TEXTS * 3, label=CLASSES * 3))
    texts = [text for text, _ in found.train + found.test]
    assert len(texts) == len(set(texts)) == 30


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"text": TEXTS, "kind": CLASSES}, {}, "choose with --label; some.parquet has the columns"),
        ({"words": CLASSES, "label": CLASSES}, {}, "choose with --text; some.parquet has"),
        ({"a": TEXTS, "b": TEXTS, "c": TEXTS, "label": CLASSES}, {}, "one or two columns of text"),
        ({"text": TEXTS, "label": CLASSES}, {"label": "mood"}, "--label mood: no such column"),
        ({"text": TEXTS, "label": CLASSES}, {"texts": ["x"]}, "--text x: no such column"),
        ({"text": TEXTS, "n": CLASSES, "label": CLASSES}, {"texts": ["n"]}, "int64, not text"),
        (
            {"text": TEXTS, "label": [0.5] * 30},
            {},
            "whole numbers or names; .* holds double",
        ),
        ({"text": TEXTS, "label": [1] * 30}, {}, "has one class, needs two"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_in_one_line(tmp_path, columns, options, words):
    write(tmp_path, **columns)
    with pytest.raises(SystemExit, match=words) as caught:
        read(tmp_path, **options)
    assert "\n" not in str(caught.value)


def test_no_folder_no_files_and_damaged_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match="there is no folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="holds no parquet files"):
        read(tmp_path)
    (tmp_path / "some.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(SystemExit, match=r"some\.parquet.*damaged") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_seed_draws_its_own_sentences_and_the_test_is_the_same_for_all(tmp_path):
    data = read(write(tmp_path, text=TEXTS, label=CLASSES))
    one, other = data.drawn(8, 0.0, seed=0), data.drawn(8, 0.0, seed=1)
    assert one == data.drawn(8, 0.0, seed=0)
    assert one[0] != other[0]
    assert one[2] == other[2] == data.test
    assert not {t for t, _ in one[0]} & {t for t, _ in one[1]}
    assert not {t for t, _ in one[0] + one[1]} & {t for t, _ in data.test}


def test_the_asked_share_of_training_labels_is_wrong_and_no_other(tmp_path):
    data = read(write(tmp_path, text=TEXTS, label=CLASSES))
    truth = dict(data.train)
    for noise in (0.0, 0.5):
        train, validation, _ = data.drawn(10, noise, seed=3)
        assert sum(truth[text] != label for text, label in train) == 10 * noise
        assert all(truth[text] == label for text, label in validation)
    same = data.drawn(10, 0.0, seed=3)[0]
    assert [text for text, _ in same] == [text for text, _ in data.drawn(10, 0.5, seed=3)[0]]


def test_without_a_folder_the_sentences_are_docstrings_of_packages():
    pytest.importorskip("sklearn")
    found = sentences.docstrings(8, 10)
    assert found.classes == ("torch", "numpy", "scipy", "sklearn")
    assert len(found.train) >= 16
    assert {label for _, label in found.train} == {0, 1, 2, 3}
    assert all(len(text.split()) >= 5 for (text,), _ in found.train)


def fresh(method, *accuracy, noise=0.0, validation=75.0, **settings):
    return study_table.Fresh(
        method=method,
        noise=noise,
        accuracy=dict(enumerate(accuracy)),
        settings={"learning_rate": 1e-3, "weight_decay": 0.1, **settings},
        edge=("weight_decay",),
        validation=validation,
        guessing=study_table.guessing(2, 100),
        seconds=1.0,
    )


def test_the_table_has_means_intervals_leads_and_settings():
    base, better = fresh("AdamW", 70, 72, 74), fresh("F-SAM", 75, 76, 80, rho=0.05)
    rows = list(study_table.table([base, better]))
    assert "| 0% | AdamW | 72.0 [67.0, 77.0] |  | 3 | 0.001 | 0.1* |  | 75.0 |" in rows
    assert "| +5.00 [+2.52, +7.48], p = 0.013 | 3 | 0.001 | 0.1* | 0.05 | 75.0 |" in rows[-1]


def test_a_verdict_is_what_the_differences_show():
    base = fresh("AdamW", 70, 72, 74)
    noisy = fresh("AdamW", 60, 62, 64, noise=0.4)
    found = [base, fresh("SAM", 65, 66, 70), fresh("F-SAM", 71, 70, 76), noisy]
    lost, equal, won = study_table.leads([*found, fresh("SAM", 70.0, 72.1, 74, noise=0.4)])
    assert study_table.verdict(lost) == "With right labels, SAM loses to tuned AdamW."
    assert "F-SAM does not beat tuned AdamW: no significant difference" in study_table.verdict(
        equal
    )
    assert study_table.verdict(won) == "With 40% wrong labels, SAM beats tuned AdamW."


def test_a_search_that_only_guessed_compares_nothing():
    assert study_table.guessing(2, 100) == pytest.approx(60)
    guessed = [fresh("AdamW", 70, 72, 74), fresh("F-SAM", 80, 82, 84.5, validation=59.0)]
    (lead,) = study_table.leads(guessed)
    assert lead.p < 0.05
    assert "no comparison of tuned methods" in study_table.verdict(lead)
