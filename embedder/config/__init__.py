"""The settings: each with its type, default, rule and text; presets; TOML.

It may import `base`. Read `settings.py` first: how a field says its type, default,
rule and text; then `token_options.py`, most of the settings.
"""

from embedder.config.config import FAMILIES as FAMILIES
from embedder.config.config import Config as Config
from embedder.config.config import changing_names as changing_names
from embedder.config.config import common_config as common_config
from embedder.config.config import current_name as current_name
from embedder.config.config import different_options as different_options
from embedder.config.config import from_toml as from_toml
from embedder.config.config import make_config as make_config
from embedder.config.config import nearest as nearest
from embedder.config.config import options_of as options_of
from embedder.config.config import per_host_names as per_host_names
from embedder.config.config import per_model_names as per_model_names
from embedder.config.config import read_toml as read_toml
from embedder.config.config import replicas_of as replicas_of
from embedder.config.config import resolve as resolve
from embedder.config.config import section_of as section_of
from embedder.config.config import to_toml as to_toml
from embedder.config.config import with_options as with_options
