"""Two places, and a budget that is kept."""

import pytest
import torch

from llmlab.memory import TileMachine
from llmlab.memory.tile_machine import SRAMOverflowError
from llmlab.memory.tile_programs import run_on_tiles


@pytest.fixture
def machine():
    machine = TileMachine(sram_bytes=256)
    machine.place("X", torch.arange(32.0).view(8, 4))  # 16 bytes a row
    return machine


def test_load_and_store_are_recorded(machine):
    tile = machine.load("X", slice(6, 100))
    assert tile.data.tolist() == [[24, 25, 26, 27], [28, 29, 30, 31]]
    with machine.program(3, 1):
        machine.store("X", 0, slice(0, 2), torch.tensor([5.0, 6.0]))
    first, second = machine.trace.events
    assert (first.kind, first.tile, first.bytes, first.program) == (
        "load",
        ((6, 8), (0, 4)),
        32,
        (),
    )
    assert (second.kind, second.tile, second.bytes) == ("store", ((0, 1), (0, 2)), 8)
    assert second.program == (3, 1)
    assert (first.step, second.step) == (0, 1)
    assert machine.result("X")[0].tolist() == [5, 6, 2, 3]
    assert machine.trace.bytes("X", "load") == 32
    assert machine.trace.bytes(kind="store") == 8
    assert machine.trace.programs() == [(0, ()), (0, (3, 1))]


def test_a_loaded_tile_is_a_copy(machine):
    tile = machine.load("X", 0)
    tile.data += 100
    assert machine.result("X")[0].tolist() == [0, 1, 2, 3]


def test_the_budget_is_kept(machine):
    tiles = [machine.load("X"), machine.load("X", slice(0, 7))]  # 128 + 112 bytes
    with pytest.raises(SRAMOverflowError, match=r"32 bytes of SRAM, 16 more .* X 128, X 112"):
        machine.load("X", slice(0, 2))
    assert len(machine.trace) == 2
    machine.free(*tiles)
    assert machine.used_sram_bytes == 0
    machine.allocate("sums", torch.zeros(64))
    assert machine.peak_sram_bytes == 256
    with pytest.raises(SRAMOverflowError):
        machine.allocate("more", torch.zeros(1))


def test_a_program_gives_its_room_back_even_when_it_fails(machine):
    def program():
        with machine.program(0):
            machine.load("X")
            machine.allocate("S", torch.zeros(64))

    with pytest.raises(SRAMOverflowError):
        program()
    assert machine.used_sram_bytes == 0


def test_misuse_is_told(machine):
    tile = machine.load("X", 0)
    machine.free(tile)
    with pytest.raises(ValueError, match="freed twice"):
        machine.free(tile)
    with pytest.raises(ValueError, match="no tensor 'Y'"):
        machine.load("Y")
    with pytest.raises(ValueError, match="already holds"):
        machine.place("X", torch.zeros(1))
    with pytest.raises(ValueError, match="cannot store"):
        machine.store("X", slice(0, 2), torch.zeros(3, 4))
    with pytest.raises(ValueError, match="empty"):
        machine.load("X", slice(8, 9))
    with pytest.raises(ValueError, match="above 0"):
        TileMachine(0)
    with pytest.raises(ValueError, match="no step"):
        machine.load("X", slice(0, 8, 2))
    with pytest.raises(ValueError, match="no tensor 'Z'"):
        machine.trace.bytes("Z")
    with pytest.raises(ValueError, match="'load' or 'store'"):
        machine.trace.bytes(kind="read")


def test_flash_fits_where_standard_does_not():
    """SRAM of 8 KB: blocks of 16 fit, a row block of standard attention's scores does not."""
    q, k, v = torch.randn(3, 1, 1, 512, 16).unbind(0)
    _, machine = run_on_tiles("flash", q, k, v, sram_bytes=8192, block_q=16, block_k=16)
    assert machine.peak_sram_bytes <= 8192
    with pytest.raises(SRAMOverflowError, match="smaller blocks"):
        run_on_tiles("standard_tiled", q, k, v, sram_bytes=8192, block_q=16, block_k=16)
