"""Serving: many requests at once, from one scheduler, on a real model or on a simulated GPU."""

from llmlab.serving.engine import Engine
from llmlab.serving.request import Request
from llmlab.serving.scheduler import POLICIES, Chunk, Scheduler
from llmlab.serving.simulator import Arrival, IterationCost, poisson_workload, simulate
from llmlab.serving.timeline import Iteration, Metrics, Timeline

__all__ = [
    "POLICIES",
    "Arrival",
    "Chunk",
    "Engine",
    "Iteration",
    "IterationCost",
    "Metrics",
    "Request",
    "Scheduler",
    "Timeline",
    "poisson_workload",
    "simulate",
]
