"""The cache file is shared, resumed, complete or absent, and memory-mapped."""

from __future__ import annotations

import os
import sys
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from support.folder_files import write_grey

from fedquilt.core.errors import UserError
from fedquilt.data.images import cache as image_cache
from fedquilt.data.images import content_hash
from fedquilt.data.images.cache import ImageFile, cached_images, open_mapped
from fedquilt.data.images.content_hash import damaged_files, hash_file
from fedquilt.data.images.decoding import Decoded, Decoding, decode_image

TINY = Decoding(size=4, channels=1)


def make_files(folder: Path, count: int) -> list[ImageFile]:
    """Every pixel of image i is i."""
    return [ImageFile(f"{i}.png", write_grey(folder / f"{i}.png", i), i + 2) for i in range(count)]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the decoded images, collected while the test runs."""
    names: list[str] = []

    def watched(path: Path, decoding: Decoding) -> Decoded:
        names.append(path.name)
        return decode_image(path, decoding)

    monkeypatch.setattr(image_cache, "decode_image", watched)
    return names


def test_order_shape_and_reuse(tmp_path: Path, decoded: list[str]) -> None:
    files = make_files(tmp_path / "images", 5)[::-1]
    images = cached_images(files, TINY, tmp_path / "cache")
    assert images.shape == (5, 1, 4, 4)
    assert images[:, 0, 0, 0].tolist() == [4, 3, 2, 1, 0]
    assert len(decoded) == 5
    again = cached_images(files, TINY, tmp_path / "cache")
    assert torch.equal(again, images)
    assert len(decoded) == 5
    assert not list((tmp_path / "cache").glob("*.part"))


def test_slices_share_the_mapping_and_writes_stay_private(tmp_path: Path) -> None:
    files = make_files(tmp_path / "images", 5)
    images = cached_images(files, TINY, tmp_path / "cache")
    assert images[3:].data_ptr() == images.data_ptr() + 3 * 16  # 4 x 4 bytes an image: no copy
    images[0] = 200
    assert cached_images(files, TINY, tmp_path / "cache")[0].max() == 0


def test_a_changed_image_order_or_setting_makes_a_new_file(
    tmp_path: Path, decoded: list[str]
) -> None:
    files, cache = make_files(tmp_path / "images", 3), tmp_path / "cache"
    cached_images(files, TINY, cache)
    cached_images(files[::-1], TINY, cache)
    cached_images(files, Decoding(size=4, channels=1, fit="pad"), cache)
    write_grey(files[1].path, 99)
    os.utime(files[1].path, ns=(0, 0))
    assert cached_images(files, TINY, cache)[1].max() == 99
    assert len(decoded) == 4 * 3
    assert len(list(cache.glob("*.u8"))) == 4


def test_an_interrupted_decode_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[str]
) -> None:
    files, cache = make_files(tmp_path / "images", 10), tmp_path / "cache"
    watched = image_cache.decode_image
    monkeypatch.setattr(image_cache, "CHUNK", 2)

    def interrupted(path: Path, decoding: Decoding) -> Decoded:
        if path.name == "7.png":
            raise KeyboardInterrupt
        return watched(path, decoding)

    monkeypatch.setattr(image_cache, "decode_image", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached_images(files, TINY, cache)
    (part,) = cache.glob("*.part")
    assert not list(cache.glob("*.u8"))
    with part.open("ab") as file:
        file.write(b"\xff" * 5)  # a row that a crash cut short
    kept = part.stat().st_size // 16
    assert kept >= 6
    decoded.clear()
    monkeypatch.setattr(image_cache, "decode_image", watched)
    images = cached_images(files, TINY, cache)
    assert images[:, 0, 3, 3].tolist() == list(range(10))
    assert len(decoded) == 10 - kept


def test_a_truncated_file_is_made_again(tmp_path: Path) -> None:
    files, cache = make_files(tmp_path / "images", 3), tmp_path / "cache"
    del files[0]
    cached_images(files, TINY, cache)
    (path,) = cache.glob("*.u8")
    path.write_bytes(path.read_bytes()[:-1])
    assert cached_images(files, TINY, cache)[:, 0, 0, 0].tolist() == [1, 2]


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[17] ^= 4
    path.write_bytes(content)


def test_a_damaged_file_of_the_right_size_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, cache = make_files(tmp_path / "images", 3), tmp_path / "cache"
    cached_images(files, TINY, cache)
    (path,) = cache.glob("*.u8")
    _flip_a_bit(path)
    assert cached_images(files, TINY, cache)[:, 0, 0, 1].tolist() == [0, 1, 2]
    assert f"the decoded images in {path.name} are damaged" in caplog.text
    caplog.clear()
    cached_images(files, TINY, cache)
    assert caplog.text == ""


def test_a_damaged_hash_counts_as_damage(tmp_path: Path, decoded: list[str]) -> None:
    files, cache = make_files(tmp_path / "images", 3), tmp_path / "cache"
    cached_images(files, TINY, cache)
    (path,) = cache.glob("*.u8")
    os.utime(path, ns=(0, 0))  # not the file that this process found intact
    hash_file(path).write_text("{")
    cached_images(files, TINY, cache)
    assert len(decoded) == 2 * 3


def test_a_file_of_an_earlier_version_is_used_and_gets_a_hash(
    tmp_path: Path, decoded: list[str]
) -> None:
    files, cache = make_files(tmp_path / "images", 3), tmp_path / "cache"
    cached_images(files, TINY, cache)
    (path,) = cache.glob("*.u8")
    hash_file(path).unlink()
    os.utime(path, ns=(0, 0))
    cached_images(files, TINY, cache)
    assert len(decoded) == 3
    _flip_a_bit(path)
    assert damaged_files(cache) == [path]
    assert not list(cache.glob("images-*.u8")) + list(cache.glob("*.hash.json"))


def test_the_hash_covers_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_hash, "BLOCK", 8)
    monkeypatch.setattr(content_hash, "READ", 4)
    path, hashes = tmp_path / "images-x.u8", set()
    for changed in (None, 0, 7, 8, 20):
        content = bytearray(21)
        if changed is not None:
            content[changed] = 1
        path.write_bytes(content)
        hashes.add(content_hash.content_hash(path))
    path.write_bytes(bytes(22))
    assert len(hashes | {content_hash.content_hash(path)}) == 6


def test_all_bad_images_are_reported_by_line_and_no_file_is_left(tmp_path: Path) -> None:
    files, cache = make_files(tmp_path / "images", 6), tmp_path / "cache"
    for file in (files[1], files[4]):
        file.path.write_bytes(file.path.read_bytes()[:30])
    with pytest.raises(UserError, match="export them again") as caught:
        cached_images(files, TINY, cache)
    assert "line 3: " in str(caught.value)
    assert "line 6: " in str(caught.value)
    assert "4.png" not in str(caught.value)
    assert not list(cache.glob("*.part")) + list(cache.glob("*.u8"))


def test_runs_that_start_together_decode_once(tmp_path: Path, decoded: list[str]) -> None:
    files, cache = make_files(tmp_path / "images", 40), tmp_path / "cache"
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: cached_images(files, TINY, cache), range(3)))
    assert all(torch.equal(result, results[0]) for result in results)
    assert len(decoded) == 40


def test_too_little_space_is_reported_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[str]
) -> None:
    usage = namedtuple("usage", "total used free")(0, 0, 47)
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UserError, match="choose another cache folder or a smaller size"):
        cached_images(make_files(tmp_path / "images", 3), TINY, tmp_path / "cache")  # 48 bytes
    assert not decoded


@pytest.mark.skipif(sys.platform != "linux", reason="measures Linux's memory accounting")
def test_a_file_larger_than_the_memory_can_be_mapped(tmp_path: Path) -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2 * memory)  # a hole: it takes no space on the disk
        file.seek(2 * memory - 1)
        file.write(b"\x07")
    assert open_mapped(tmp_path / "huge")[-1] == 7
