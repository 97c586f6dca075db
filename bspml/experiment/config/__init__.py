"""One YAML file describes one experiment; every value has a default.

`load_config()` is the main job; `load_config("configs/glyphs_paper.yaml", ["seed=3"])` reads a
file and then the command line's overrides.  Whatever is wrong ends in one line of `ConfigError`.
"""

from bspml.experiment.config.classification import ClassificationConfig
from bspml.experiment.config.curriculum import CurriculumConfig
from bspml.experiment.config.data import DataConfig, NoiseConfig
from bspml.experiment.config.names import DATASETS, NETWORKS, NOISE_KINDS
from bspml.experiment.config.reading import (
    config_from_mapping,
    dump_config,
    load_config,
    load_experiment,
)
from bspml.experiment.config.schema import (
    Config,
    EvaluationConfig,
    LossConfig,
    NetworkConfig,
    OptimizerConfig,
    SamplerConfig,
    TrainingConfig,
)

__all__ = [
    "DATASETS",
    "NETWORKS",
    "NOISE_KINDS",
    "ClassificationConfig",
    "Config",
    "CurriculumConfig",
    "DataConfig",
    "EvaluationConfig",
    "LossConfig",
    "NetworkConfig",
    "NoiseConfig",
    "OptimizerConfig",
    "SamplerConfig",
    "TrainingConfig",
    "config_from_mapping",
    "dump_config",
    "load_config",
    "load_experiment",
]
