"""Bytes between memory and chip: closed forms, a tile machine, traces, rooflines."""

from llmlab.memory.events import Event, TensorInfo, Trace
from llmlab.memory.hardware import Hardware, hardware
from llmlab.memory.ledger import attention_traffic, decoding_traffic
from llmlab.memory.tile_machine import TileMachine
from llmlab.memory.trace import trace_kernel
from llmlab.memory.traffic import Traffic

__all__ = [
    "Event",
    "Hardware",
    "TensorInfo",
    "TileMachine",
    "Trace",
    "Traffic",
    "attention_traffic",
    "decoding_traffic",
    "hardware",
    "trace_kernel",
]
