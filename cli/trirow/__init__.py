"""Trirow, an open INT8 convolution accelerator: the names that a script needs.

A layer of random numbers, in RTL against golden:

    import trirow

    layer, features = trirow.random_layer(8, 8, 8, 8, kernel=(3, 3), pad=(1, 1, 1, 1))
    run = trirow.simulate([layer], features, trirow.PRESETS["tiny"])
    print(run.ok, run.report.cycles, run.outputs[0].shape)
"""

from trirow_driver.conv_layer import ConvLayer, quantise_conv
from trirow_driver.float_network import FloatConv, FloatNetwork, load_npz, quantise_network
from trirow_driver.picture import load_picture
from trirow_driver.quantise import Quantisation, dequantise, from_range, quantise
from trirow_hw.config import PRESETS, Config
from trirow_sim.case import random_layer
from trirow_sim.memory import MEMORY_MODELS
from trirow_sim.simulate import RunError, Simulation, golden_outputs, simulate

__all__ = [
    "MEMORY_MODELS",
    "PRESETS",
    "Config",
    "ConvLayer",
    "FloatConv",
    "FloatNetwork",
    "Quantisation",
    "RunError",
    "Simulation",
    "dequantise",
    "from_range",
    "golden_outputs",
    "load_npz",
    "load_picture",
    "quantise",
    "quantise_conv",
    "quantise_network",
    "random_layer",
    "simulate",
]
