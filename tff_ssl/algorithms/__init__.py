"""The algorithms: one file each, and the one registry of processes.

The registry says how a process is built, what data it needs, and which settings
it has; the runner's flags and refusals, the contract suite and the README's
table derive from it. To add an algorithm, write one file and add one entry
here.

Importing the registry is cheap: a builder's module is imported when it is used.
"""

import dataclasses
import importlib
import types
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
  """How to build a process and what it needs.

  Attributes:
    name: Name of the process, as in `--process`.
    description: One line for users.
    source: Where the method is defined.
    builder: `module.function` below `tff_ssl.algorithms`; call `build`.
    settings: Keyword arguments of the builder that are a user's to choose.
    fixed: Keyword arguments that make this process out of the builder.
    objective: Name of the class in `tff_ssl.objectives` for the clients, or
      `None` for the builder's default.
    server_optimizer: Name of the function in `tff_ssl.optimizers` that makes
      the server's optimizer of the setting `server_learning_rate`, or `None`
      for the builder's default.
    labels_at: Whose labels training sees: 'server', 'clients' (all of theirs),
      'dealt' (some labelled examples of the clients) or 'sets' (nobody's: an
      example's `y` is the index of the set that it lies in, and the client's
      context holds the class priors of its sets).
    has_server_training: Whether the builder takes `server_data`.
    has_client_training: Whether clients train at all.
    uses_unlabelled: Whether clients train on what has no label beside what has
      one, so that it takes some of each to show anything.
    keeps_client_state: Whether it takes `client_state_dir`.
    counts_clients: Whether it takes `num_clients`, all there are.
    redraws_masks: Whether it takes `redrawn_mask_ratio`.
    needs_encoder: Whether the model must be a `SplitModel` (`tff_ssl.join`).
    augments: Whether examples go in augmented and standardised; if not, as
      pixels in [0, 1].
    has_strong_view: Whether it takes the strong view of images.
    has_gradient_diversity: Whether it can be measured.
    exceptions: Contract checks (`tff_ssl.testing`) that do not apply, with the
      reason.
  """

  name: str
  description: str
  source: str
  builder: str
  settings: tuple[str, ...]
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  objective: str | None = None
  server_optimizer: str | None = None
  labels_at: str = 'server'
  has_server_training: bool = True
  has_client_training: bool = True
  uses_unlabelled: bool = False
  keeps_client_state: bool = False
  counts_clients: bool = False
  redraws_masks: bool = False
  needs_encoder: bool = False
  augments: bool = True
  has_strong_view: bool = True
  has_gradient_diversity: bool = True
  exceptions: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def function(self) -> Callable[..., Any]:
    """The builder function itself."""
    module, name = self.builder.split('.')
    return getattr(
      importlib.import_module(f'tff_ssl.algorithms.{module}'), name
    )

  @property
  def build(self) -> Callable[..., Any]:
    """The builder, with `fixed` filled in.

    It takes the model, `data_spec`, `views`, `server_data` where
    `has_server_training`, and the settings, all but the model by name.
    """
    builder = self.function

    def build(model, *, views, **arguments):
      if clash := sorted(self.fixed.keys() & arguments.keys()):
        raise TypeError(f'{clash} cannot be given: {self.name} fixes them.')
      arguments = {**self.fixed, **arguments}
      if self.objective is not None:
        objectives = importlib.import_module('tff_ssl.objectives')
        objective = getattr(objectives, self.objective)
        fields = {field.name for field in dataclasses.fields(objective)}
        chosen = {name: arguments.pop(name) for name in fields & set(arguments)}
        arguments['client_objective'] = objective(views, **chosen)
      if self.server_optimizer is not None:
        optimizers = importlib.import_module('tff_ssl.optimizers')
        make = getattr(optimizers, self.server_optimizer)
        names = {'server_learning_rate'} & arguments.keys()
        rate = {name: arguments.pop(name) for name in names}
        arguments.setdefault('server_optimizer', make(**rate))
      return builder(model, views=views, **arguments)

    return build


_LOCAL = ('batch_size', 'local_steps', 'local_epochs')
_SERVER = (
  'server_steps',
  'server_batch_size',
  'server_warmup_rounds',
  'server_weight',
  'bn_statistics',
)
_SLOTS = ('start_model', 'client_momentum')
_CRL = ('threshold', 'views_forward')
_FIXMATCH = (
  *('client_weighting', 'labelled_batch_size', *_LOCAL),
  *(*_CRL, 'unlabelled_weight'),
)
_UDA = (*_FIXMATCH, 'temperature')
_GROUPING = 'grouping.build_grouping_ssfl'
_AT_CLIENTS = 'grouping_at_clients.build_grouping_at_clients'
_LABEL_HUNGRY = (
  *('batch_size', 'local_steps', 'local_epochs', 'client_weighting'),
  'client_momentum',
)
_FEDUL = 'Lu et al. 2022, arXiv 2204.03304'
_FEDLLP = 'fedllp.build_fedllp'
_MIX = ('mix', 'mixup_weight', 'mixup_concentration')
_FEDMATCH = (
  *('threshold', 'num_helpers', 'helper_interval', 'supervised_weight'),
  *('inter_client_weight', 'agreement_weight', 'sigma_psi_weight', 'l1_weight'),
  *('client_weighting', *_LOCAL),
)
_PAPER_2 = 'Cho et al. 2023, arXiv 2307.08809'
_PAPER_3 = 'Hegde et al., Label Hungry? Not Anymore'
_PAPER_1 = 'Zhang et al. 2021, arXiv 2008.11364'
_SERVER_COUNTS = (
  'the server model is one of the models that are averaged, so n copies of a '
  'client outweigh it more than one copy does (Eq. 7)'
)

# Never: clients do not join.
_SERVER_ONLY_ROUNDS = 2**31 - 1

PROCESSES: Mapping[str, ProcessSpec] = types.MappingProxyType(
  {
    spec.name: spec
    for spec in (
      ProcessSpec(
        'grouping',
        'CRL at clients, labels at the server, averages within S groups.',
        f'{_PAPER_1}, Eqs. 3, 4 and 7',
        _GROUPING,
        ('num_groups', *_CRL, *_LOCAL, *_SLOTS, *_SERVER, 'server_replicas'),
        exceptions={'copies_count_as_one': _SERVER_COUNTS},
      ),
      ProcessSpec(
        'fedavg_ssfl',
        'The same without groups: FedAvg with a server model (S = 1).',
        f'{_PAPER_1}, Eqs. 3, 4 and 8',
        _GROUPING,
        (*_CRL, *_LOCAL, 'client_momentum', *_SERVER),
        fixed={'num_groups': 1},
        exceptions={'copies_count_as_one': _SERVER_COUNTS},
      ),
      ProcessSpec(
        'semifl',
        'Clients train on labels of the received model, then the server.',
        "Diao et al. 2022, arXiv 2106.01432, and its authors' code",
        'semifl.build_semifl',
        (
          *('threshold', 'pseudo_label_view', 'mixup_weight'),
          *('mixup_concentration', 'global_momentum', 'client_weighting'),
          *(*_LOCAL, 'server_epochs', 'server_batch_size'),
        ),
        has_gradient_diversity=False,
      ),
      ProcessSpec(
        'self_training',
        'Self-training on weak views at clients, FedAvg with a server model.',
        f'{_PAPER_1}, Eqs. 3, 5 and 8',
        _GROUPING,
        ('threshold', *_LOCAL, 'client_momentum', *_SERVER),
        fixed={'num_groups': 1},
        objective='SelfTraining',
        exceptions={'copies_count_as_one': _SERVER_COUNTS},
        has_strong_view=False,
      ),
      ProcessSpec(
        'server_only',
        "The lower bound: training on the server's labelled examples alone.",
        f'{_PAPER_1}, Eq. 3',
        _GROUPING,
        ('server_steps', 'server_batch_size'),
        fixed={
          'num_groups': 1,
          'local_steps': 1,
          'server_warmup_rounds': _SERVER_ONLY_ROUNDS,
        },
        has_client_training=False,
        has_strong_view=False,
      ),
      ProcessSpec(
        'grouping_client_labels',
        'Some labels at clients, no server data, averages within S groups.',
        f'{_PAPER_1}, Appendix H',
        _AT_CLIENTS,
        (
          *('num_groups', *_CRL, 'unlabelled_loss', 'unlabelled_weight'),
          'labelled_batch_size',
          *(*_LOCAL, *_SLOTS),
        ),
        labels_at='dealt',
        has_server_training=False,
      ),
      ProcessSpec(
        'grouping_supervised',
        'The upper bound: all labels at clients, and the server data.',
        f'{_PAPER_1}, Eqs. 3, 6 and 7 (Figure 2, Appendix F)',
        _GROUPING,
        ('num_groups', *_LOCAL, *_SLOTS, *_SERVER, 'server_replicas'),
        objective='Supervised',
        labels_at='clients',
        exceptions={'copies_count_as_one': _SERVER_COUNTS},
        has_strong_view=False,
      ),
      ProcessSpec(
        'fedavg',
        'Supervised FedAvg, all labels at clients: the upper bound.',
        'McMahan et al. 2017, arXiv 1602.05629, Algorithm 1',
        'fed_avg.build_fed_avg',
        ('client_weighting', 'client_momentum', *_LOCAL),
        labels_at='clients',
        redraws_masks=True,
        has_server_training=False,
        has_strong_view=False,
      ),
      ProcessSpec(
        'fedprox',
        'Supervised FedProx, all labels at clients.',
        'Li et al. 2020, arXiv 1812.06127, Eq. 2',
        'fed_avg.build_fed_avg',
        (
          *('client_weighting', 'proximal_strength', 'client_momentum'),
          *_LOCAL,
        ),
        labels_at='clients',
        has_strong_view=False,
        redraws_masks=True,
        has_server_training=False,
      ),
      ProcessSpec(
        'fedadam',
        'Supervised FedAvg with Adam at the server, all labels at clients.',
        'Reddi et al. 2021, arXiv 2003.00295, Algorithm 2',
        'fed_avg.build_fed_avg',
        ('server_learning_rate', 'client_weighting', *_LOCAL),
        server_optimizer='build_server_adam',
        labels_at='clients',
        redraws_masks=True,
        has_server_training=False,
        has_strong_view=False,
      ),
      ProcessSpec(
        'fednova',
        'Supervised FedAvg of changes per step, all labels at clients.',
        'Wang et al. 2020, arXiv 2007.07481, Eq. 6',
        'fednova.build_fednova',
        ('client_weighting', 'proximal_strength', *_LOCAL),
        labels_at='clients',
        redraws_masks=True,
        has_server_training=False,
        has_strong_view=False,
      ),
      ProcessSpec(
        'scaffold',
        'Supervised SCAFFOLD, controls against drift, all labels at clients.',
        'Karimireddy et al. 2020, arXiv 1910.06378, Algorithm 1',
        'scaffold.build_scaffold',
        (
          *('control_update', 'server_learning_rate', 'client_weighting'),
          *_LOCAL,
        ),
        server_optimizer='build_server_sgd',
        labels_at='clients',
        keeps_client_state=True,
        counts_clients=True,
        redraws_masks=True,
        has_server_training=False,
        has_gradient_diversity=False,
        has_strong_view=False,
      ),
      *(
        ProcessSpec(
          f'{average.lower()}_{method.lower()}',
          f'{average} with {method} at clients, some of whose examples have '
          'labels.',
          f'{_PAPER_2}, Section 5.1 (baselines); {source}',
          'fed_avg.build_fed_avg',
          (*settings, *more),
          fixed={'unlabelled_loss': loss},
          objective='SemiSupervised',
          labels_at='clients',
          uses_unlabelled=True,
          has_server_training=False,
        )
        for average, more in (
          ('FedAvg', ()),
          ('FedProx', ('proximal_strength',)),
        )
        for method, settings, loss, source in (
          ('UDA', _UDA, 'uda', 'arXiv 1904.12848'),
          ('FixMatch', _FIXMATCH, 'crl', 'arXiv 2001.07685'),
        )
      ),
      ProcessSpec(
        'fedtrinet',
        'Global, old and new model of a client label its examples together.',
        "Che et al. 2021, arXiv 2109.05612, and its authors' code",
        'fedtrinet.build_fedtrinet',
        ('supervised_rounds', 'client_weighting', *_LOCAL),
        labels_at='clients',
        uses_unlabelled=True,
        needs_encoder=True,
        keeps_client_state=True,
        has_server_training=False,
        has_gradient_diversity=False,
        has_strong_view=False,
      ),
      ProcessSpec(
        'fedlabel',
        'Local or global model, the surer one, labels unlabelled examples.',
        f'{_PAPER_2}, Algorithm 1',
        'fedlabel.build_fedlabel',
        (
          *('threshold', 'consistency_weight', 'confidence', 'experts'),
          *('expert_view', 'consistency_view', 'kl_direction'),
          *('batch_size', 'labelled_steps', 'unlabelled_steps'),
          'client_weighting',
        ),
        labels_at='clients',
        uses_unlabelled=True,
        has_server_training=False,
        has_gradient_diversity=False,
      ),
      *(
        ProcessSpec(
          name,
          description,
          f'{_FEDUL}, Appendix D.2 (baselines), {equations}',
          builder,
          (*settings, 'l1_weight', 'client_weighting'),
          objective=objective,
          labels_at='sets',
          has_server_training=False,
          has_gradient_diversity=False,
          has_strong_view=False,
        )
        for name, objective, equations, builder, settings, description in (
          (
            *('fedpl', None, 'Eqs. 14 to 17', 'fedpl.build_fedpl'),
            (*_LOCAL, 'threshold', 'warmup_rounds', *_MIX),
            'Sets take the class of their largest prior; then mixup.',
          ),
          (
            *('fedllp', 'LabelProportions', 'Eq. 18', _FEDLLP),
            ('local_epochs',),
            "The mean prediction on a set is drawn to the set's priors.",
          ),
          (
            *('fedllp_vat', 'VirtualAdversarialProportions', 'Eq. 19', _FEDLLP),
            ('local_epochs', 'vat_weight', 'vat_radius', 'vat_ramp'),
            'The same with virtual adversarial training beside it.',
          ),
        )
      ),
      ProcessSpec(
        'fedmatch',
        'Weights sigma + psi, the clients with like models help each other.',
        "Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
        'fedmatch.build_fedmatch',
        (*_FEDMATCH, 'labelled_batch_size'),
        labels_at='clients',
        uses_unlabelled=True,
        keeps_client_state=True,
        counts_clients=True,
        has_server_training=False,
        has_gradient_diversity=False,
      ),
      ProcessSpec(
        'fedmatch_server',
        'The same with labels at the server, which alone trains sigma.',
        "Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
        'fedmatch_server.build_fedmatch_server',
        (
          *_FEDMATCH,
          *('server_steps', 'server_batch_size', 'server_warmup_rounds'),
        ),
        keeps_client_state=True,
        counts_clients=True,
        has_gradient_diversity=False,
      ),
      ProcessSpec(
        'fsl',
        'Supervised FedAvg on what has a label: the label-hungry baseline.',
        f'{_PAPER_3}, Experimental Setup (FSL)',
        'fed_avg.build_fed_avg',
        (*_LABEL_HUNGRY, 'epoch_batches', 'match_local_steps'),
        labels_at='clients',
        redraws_masks=True,
        has_server_training=False,
        augments=False,
        has_strong_view=False,
      ),
      ProcessSpec(
        'sspt',
        'Self-supervised pre-training, then supervised FedAvg, in one run.',
        f'{_PAPER_3}, Methods 1 and Figure 3',
        'sspt.build_sspt',
        (
          *(*_LABEL_HUNGRY, 'epoch_batches', 'proxy_task'),
          *('pretraining_rounds', 'pretraining_images', 'encoder_training'),
        ),
        labels_at='clients',
        has_strong_view=False,
        redraws_masks=True,
        uses_unlabelled=True,
        has_server_training=False,
        needs_encoder=True,
        augments=False,
        has_gradient_diversity=False,
      ),
      ProcessSpec(
        'ssjo',
        'Classifier and self-supervised task trained jointly, FedAvg.',
        f'{_PAPER_3}, Methods 2 and Figure 4',
        'ssjo.build_ssjo',
        (
          *(*_LABEL_HUNGRY, 'proxy_task', 'ssjo_loss_weight'),
          'labelled_batch_probability',
        ),
        labels_at='clients',
        has_strong_view=False,
        redraws_masks=True,
        uses_unlabelled=True,
        has_server_training=False,
        needs_encoder=True,
        augments=False,
        has_gradient_diversity=False,
      ),
      ProcessSpec(
        'fedul',
        'No labels at all: clients know the class priors of sets of examples.',
        f'{_FEDUL}, Algorithm 1 and Theorem 1',
        'fedul.build_fedul',
        (
          *('base_process', 'surrogate_loss', 'test_prior', 'l1_weight'),
          *('proximal_strength', 'client_weighting', *_LOCAL),
        ),
        labels_at='sets',
        has_server_training=False,
        has_strong_view=False,
      ),
    )
  }
)
