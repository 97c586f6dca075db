"""One YAML file describes one experiment; every value has a default.

`load_config()` is the main job; `load_config("glyphs_paper", ["seed=3"])` reads a file, here one
that is shipped, and then the command line's overrides.  Whatever is wrong ends in one line of
`ConfigError`.
"""

from bspml.experiment.config.classification import ClassificationConfig as ClassificationConfig
from bspml.experiment.config.curriculum import CurriculumConfig as CurriculumConfig
from bspml.experiment.config.data import DataConfig as DataConfig, NoiseConfig as NoiseConfig
from bspml.experiment.config.names import (
    DATASETS as DATASETS,
    NETWORKS as NETWORKS,
    NOISE_KINDS as NOISE_KINDS,
)
from bspml.experiment.config.reading import (
    config_from_mapping as config_from_mapping,
    dump_config as dump_config,
    load_config as load_config,
    load_experiment as load_experiment,
)
from bspml.experiment.config.schema import (
    Config as Config,
    EvaluationConfig as EvaluationConfig,
    LossConfig as LossConfig,
    NetworkConfig as NetworkConfig,
    OptimizerConfig as OptimizerConfig,
    SamplerConfig as SamplerConfig,
    TrainingConfig as TrainingConfig,
)
from bspml.experiment.config.shipped import shipped_configs as shipped_configs
