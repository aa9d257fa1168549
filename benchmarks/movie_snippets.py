"""A folder of sentences from film reviews, positive or negative, for the study of sentences.

    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2
    python benchmarks/movie_snippets.py vaderSentiment-3.3.2.tar.gz movie-snippets
    python examples/huggingface_trainer.py movie-snippets

The source archive of vaderSentiment (MIT licence) holds 10,605 sentences from rottentomatoes.com
with the mean rating of 20 people, from -4 to 4 (Hutto and Gilbert, 2014; the reviews are those of
Pang and Lee, 2004). Those from -0.5 to 0.5 are left out; the label is the sign of the others.
"""

import argparse
import io
import tarfile
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

INNER = "additional_resources/hutto_ICWSM_2014.tar.gz"
FILE = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
LEAST = 0.5


def member(archive, name):
    """Return a file of an archive, read into memory: nothing is unpacked to the disk."""
    found = next(m for m in archive.getmembers() if m.name.endswith(name))
    return archive.extractfile(found).read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    with tarfile.open(chosen.archive) as outer:
        inner = io.BytesIO(member(outer, INNER))
    with tarfile.open(fileobj=inner) as archive:
        lines = member(archive, FILE).decode("utf-8").splitlines()
    rated = [(text, float(rating)) for _, rating, text in (line.split("\t") for line in lines)]
    kept = [(text, rating) for text, rating in rated if abs(rating) >= LEAST]
    table = pa.table({"text": [t for t, _ in kept], "label": [int(r > 0) for _, r in kept]})
    chosen.folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, chosen.folder / "sentences.parquet")
    print(f"{len(kept)} of {len(rated)} sentences, {sum(r > 0 for _, r in kept)} positive")


if __name__ == "__main__":
    main()
