"""Between requested bytes and DRAM bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.memory import TileMachine
from llmlab.memory.last_level_cache import replay
from llmlab.memory.tile_programs import run_on_tiles

LINE = 128


def machine_with(rows=8, columns=32):
    machine = TileMachine(1 << 20)
    machine.place("X", torch.zeros(rows, columns))  # 128 bytes a row: one line
    return machine


def test_the_second_read_comes_from_the_cache():
    machine = machine_with()
    for row in (0, 1, 0, 1):
        machine.load("X", row)
    assert replay(machine.trace, cache_bytes=2 * LINE).dram_read == 2 * LINE
    assert replay(machine.trace, cache_bytes=LINE).dram_read == 4 * LINE
    assert replay(machine.trace, cache_bytes=0).dram_read == 4 * LINE
    report = replay(machine.trace, cache_bytes=2 * LINE)
    assert (report.requested, report.dram, report.share_from_cache) == (4 * LINE, 2 * LINE, 0.5)


def test_the_least_recently_used_line_makes_room():
    machine = machine_with()
    for row in (0, 1, 0, 2, 0, 1):
        machine.load("X", row)
    assert replay(machine.trace, cache_bytes=2 * LINE).dram_read == 4 * LINE


def test_writes_go_back_once():
    machine = machine_with()
    for _ in range(3):
        machine.store("X", 0, torch.ones(32))
    report = replay(machine.trace, cache_bytes=LINE)
    assert (report.dram_read, report.dram_written) == (0, LINE)
    assert report.requested_written == 3 * LINE
    without = replay(machine.trace, cache_bytes=0)
    assert without.dram_written == 3 * LINE


def test_a_part_of_a_line_is_fetched_before_it_is_changed():
    machine = machine_with()
    machine.store("X", 0, slice(0, 3), torch.ones(3))
    report = replay(machine.trace, cache_bytes=LINE)
    assert (report.dram_read, report.dram_written) == (LINE, LINE)


def test_the_short_last_line_of_a_tensor_is_whole_where_all_of_it_is_written():
    machine = machine_with(rows=3, columns=50)  # 600 bytes: four lines and 88 bytes
    machine.store("X", torch.ones(3, 50))
    report = replay(machine.trace, cache_bytes=1 << 20)
    assert (report.dram_read, report.dram_written) == (0, 5 * LINE)


def test_programs_in_flight_share_what_they_ask_for_at_the_same_time():
    """Two programs read the same rows one after the other: a small cache helps only if they run
    side by side."""
    machine = machine_with()
    for program in range(2):
        with machine.program(program):
            for row in range(8):
                machine.load("X", row)
    alone = replay(machine.trace, cache_bytes=2 * LINE)
    together = replay(machine.trace, cache_bytes=2 * LINE, programs_in_flight=2)
    assert (alone.dram_read, together.dram_read) == (16 * LINE, 8 * LINE)


def test_a_kernel_begins_when_the_one_before_is_done():
    machine = machine_with()
    with machine.program(0):
        machine.load("X", 0)
        machine.load("X", 1)
    machine.next_kernel()
    with machine.program(0):
        machine.load("X", 0)
    assert replay(machine.trace, cache_bytes=LINE, programs_in_flight=9).dram_read == 3 * LINE


@settings(deadline=None, derandomize=True, max_examples=10)
@given(data=st.data())
def test_properties(data):
    n_q, n_k, d = (data.draw(st.integers(1, 40)) for _ in range(3))
    name = data.draw(st.sampled_from(["standard", "standard_tiled", "flash", "flash1"]))
    q = torch.randn(1, 2, n_q, d)
    k, v = torch.randn(2, 1, 2, n_k, d)
    _, machine = run_on_tiles(name, q, k, v, block_q=8, block_k=8)
    in_flight = data.draw(st.integers(1, 5))
    reports = [
        replay(machine.trace, cache_bytes=size * 64, programs_in_flight=in_flight, line_bytes=64)
        for size in (0, 1, 4, 16, 64, 256, 1 << 20)
    ]
    for kind in ("dram_read", "dram_written"):
        moved = [getattr(report, kind) for report in reports]
        assert moved == sorted(moved, reverse=True)  # LRU: a larger cache holds what a smaller does
    reads = [report.dram_read for report in reports]
    tensors = machine.trace.tensors
    inputs = sum(tensors[name].nbytes for name in ("Q", "K", "V"))
    everything = sum(-(-info.nbytes // 64) * 64 for info in tensors.values())  # in whole lines
    assert inputs <= reads[-1] <= everything
    for report in reports:
        assert report.requested_read == sum(machine.trace.read.values())
        assert report.requested_written == sum(machine.trace.written.values())


@pytest.mark.parametrize("name", ["standard", "standard_tiled", "flash"])
@pytest.mark.parametrize("in_flight", [1, 4])
def test_without_a_cache_all_that_is_requested_is_moved(name, in_flight):
    """Tiles of whole lines (32 fp32 = 128 bytes): what the ledger counts, and nothing saved."""
    q = torch.randn(1, 2, 64, 32)
    _, machine = run_on_tiles(name, q, q, q, block_q=32, block_k=32)
    report = replay(machine.trace, cache_bytes=0, programs_in_flight=in_flight)
    assert report.dram_read == sum(machine.trace.read.values())
    assert report.dram_written == sum(machine.trace.written.values())
    assert report.share_from_cache == 0


@settings(deadline=None, derandomize=True, max_examples=15)
@given(data=st.data())
def test_a_cache_for_everything_moves_each_touched_line_once(data):
    """Against marks on every byte: reads are the lines first met by a load or in part."""
    line, shape = data.draw(st.sampled_from([4, 16, 24])), (3, 5, 7)
    machine = TileMachine(1 << 20)
    machine.place("X", torch.zeros(shape))
    place = torch.arange(3 * 5 * 7 * 4).view(*shape, 4)  # of each byte
    known, fetched, changed = set(), set(), set()
    for _ in range(data.draw(st.integers(1, 8))):
        bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
        where = tuple(slice(low, max(high, low + 1)) for low, high in bounds)
        if any(index.start >= n for index, n in zip(where, shape, strict=True)):
            continue
        touched = set(place[where].flatten().tolist())
        lines = {byte // line for byte in touched}
        if data.draw(st.booleans()):
            machine.load("X", *where)
            fetched |= lines - known
        else:
            machine.store("X", *where, torch.ones(shape)[where])
            whole = {n for n in lines if touched >= set(range(n * line, min((n + 1) * line, 420)))}
            fetched |= lines - known - whole
            changed |= lines
        known |= lines
    report = replay(machine.trace, cache_bytes=1 << 20, line_bytes=line)
    assert report.dram_read == line * len(fetched)
    assert report.dram_written == line * len(changed)


def test_an_infinite_cache_leaves_what_must_be_moved():
    """Rows of whole lines: inputs once in, output once out, scores never leave a large cache but
    at the end."""
    q = torch.randn(1, 1, 64, 32)
    _, machine = run_on_tiles("flash", q, q, q, block_q=16, block_k=16)
    report = replay(machine.trace, cache_bytes=1 << 30)
    assert (report.dram_read, report.dram_written) == (3 * q.nbytes, q.nbytes)
    _, machine = run_on_tiles("standard_tiled", q, q, q, block_q=32, block_k=32)
    report = replay(machine.trace, cache_bytes=1 << 30)
    assert report.dram_read == 3 * q.nbytes
    assert report.dram_written == q.nbytes + 2 * 64 * 64 * 4


@pytest.mark.parametrize("options", [{"cache_bytes": -1}, {"programs_in_flight": 0}])
def test_bad_numbers_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        replay(machine_with().trace, **({"cache_bytes": 0} | options))
