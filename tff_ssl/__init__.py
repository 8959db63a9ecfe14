"""Semi-supervised federated learning on TensorFlow Federated.

The public names, one per line, with the module that each comes from; beside
them, the builders of all processes and the modules themselves. Modules are
imported when a name is first used, for TensorFlow Federated takes seconds.
"""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

__version__ = '0.2.0'

_MODULE_OF = {
  # Processes.
  'PROCESSES': 'algorithms',
  'Needs': 'algorithms',
  'ProcessSpec': 'algorithms',
  'recommend': 'algorithms.recommendation',
  # How they train, and how they are wired.
  'Corruption': 'plans',
  'Helpers': 'plans',
  'Pretraining': 'algorithms.label_hungry',
  'ServerPlan': 'plans',
  'TrainingPlan': 'plans',
  'Wiring': 'plans',
  # Models and optimizers.
  'FunctionalModel': 'models.functional',
  'ENCODERS': 'models',
  'MODELS': 'models',
  'SplitModel': 'models.split',
  'build_nesterov_sgd': 'optimizers',
  'build_grouping_sgd': 'optimizers',
  'clip_gradients': 'optimizers',
  'build_server_adam': 'optimizers',
  'build_server_sgd': 'optimizers',
  'cosine': 'optimizers',
  'exponential': 'optimizers',
  'from_keras': 'models.functional',
  'from_tff_functional_model': 'models.functional',
  'join': 'models.split',
  # Data and augmentation.
  'ClientDataSpec': 'templates.client_data',
  'check_class_priors': 'common.prior_checks',
  'condition_number': 'common.prior_checks',
  'ImageViews': 'augmentation',
  'PlainViews': 'augmentation',
  'TokenViews': 'augmentation',
  'VectorViews': 'augmentation',
  'Views': 'protocols',
  'image_element_spec': 'templates.client_data',
  'rand_augment_views': 'augmentation',
  # Client objectives.
  'AlignedLabels': 'objectives',
  'ConfidenceMix': 'objectives',
  'ConsistencyRegularization': 'objectives',
  'FixAndMix': 'objectives',
  'InterClientConsistency': 'objectives',
  'Corrected': 'objectives',
  'Correction': 'objectives',
  'JointlyOptimized': 'objectives',
  'LabelProportions': 'objectives',
  'L1Penalty': 'objectives',
  'MixPool': 'objectives',
  'Objective': 'protocols',
  'PROXY_TASKS': 'objectives',
  'Proximal': 'objectives',
  'ProxyTask': 'objectives',
  'Reconstruction': 'objectives',
  'Rotation': 'objectives',
  'SelfSupervised': 'objectives',
  'SelfTraining': 'objectives',
  'SemiSupervised': 'objectives',
  'SharpnessAwareConsistency': 'objectives',
  'Supervised': 'objectives',
  'SurrogateSets': 'objectives',
  'TwoExperts': 'objectives',
  'VirtualAdversarialProportions': 'objectives',
  'Words': 'objectives',
  # Aggregation.
  'GroupMeanFactory': 'aggregators',
  'MedianFactory': 'aggregators',
  'NormalizedMeanFactory': 'aggregators',
  'PrivateMeanFactory': 'aggregators',
  'TrimmedMeanFactory': 'aggregators',
  'no_metrics': 'aggregators',
  'recommended_aggregator': 'aggregators.recommended',
  'secure_metrics': 'aggregators',
  # Privacy.
  'PrivacyAccount': 'privacy',
  'ReleaseLedger': 'privacy',
  'noise_multiplier_for': 'privacy',
  # Measurements.
  'Communication': 'metrics',
  'build_process_diversity': 'metrics',
  'measure_communication': 'metrics',
  'measured_state': 'metrics',
  # Deployment.
  'SavedProcess': 'compiled',
  'load_process': 'compiled',
  'save_process': 'compiled',
  # Simulation.
  'ClientFaults': 'simulation.client_faults',
  'ClientKeySource': 'simulation.client_reader',
  'build_context': 'simulation.contexts',
  'build_ray_context': 'simulation.ray_context',
  'compose_computation_with_reader': 'simulation.client_reader',
  'compose_with_reader': 'simulation.client_reader',
  'install_context': 'simulation.contexts',
  'install_ray_context': 'simulation.ray_context',
  'sample_keys': 'simulation.client_sampling',
  'stop_workers': 'simulation.worker_context',
}


def _builders() -> Mapping[str, Callable[..., Any]]:
  specs = importlib.import_module(f'{__name__}.algorithms').PROCESSES.values()
  return {spec.builder.__name__: spec.builder for spec in specs}


def __getattr__(name: str):
  if name in _MODULE_OF:
    module = importlib.import_module(f'{__name__}.{_MODULE_OF[name]}')
    return getattr(module, name)
  if name == '__all__':
    return sorted([*_MODULE_OF, *_builders()])
  if name.startswith('build_') and name in (builders := _builders()):
    return builders[name]
  if importlib.util.find_spec(f'{__name__}.{name}') is not None:
    return importlib.import_module(f'{__name__}.{name}')
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
  return [*globals(), *__getattr__('__all__')]
