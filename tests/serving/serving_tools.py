"""Random traffic for engines, and what every request must come to."""

import random
from dataclasses import dataclass

import torch

from llmlab.config import ModelConfig
from llmlab.decoding import generate
from llmlab.model import DecoderModel
from llmlab.serving import Engine, Request
