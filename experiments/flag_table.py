"""The table of the runner's flags, grouped by what they belong to.

Flags of the group "process" are the settings of the builders in
`tff_ssl.algorithms`, under the same names. No flag has a default here: what is
not given comes from `experiments.defaults`, by data set.
"""

from experiments import fedmatch_flags, fedul_flags, semifl_flags
from experiments.flag import Flag
from experiments.partition_flags import PARTITION_FLAGS
from experiments.set_baseline_flags import SET_FLAGS

GROUPS: dict[str, tuple[Flag, ...]] = {
  'data': (
    Flag('dataset', 'string', 'Name of the data set (--list names them).'),
    Flag(
      'data_dir',
      'string',
      'Folder of the data files; by default TFF_SSL_DATA_DIR, or else the '
      'download folders of TFF and TFDS.',
    ),
    Flag(
      'cache_dir',
      'string',
      'Folder of unpacked data and client stores; by default ~/.cache/tff_ssl.',
    ),
    Flag(
      'emnist_only_digits',
      'boolean',
      'Data set emnist: digits alone (10 classes), not letters as well (62).',
    ),
    Flag(
      'split',
      'string',
      "Train and test: the data set's own (the default), 80_5_15 (all examples "
      'pooled and cut anew by the seed, 80% train, 5% validation, 15% test), '
      '80_20 (the last fifth of train is for validation), or 80_20_uniform '
      '(and as many test examples of each class).',
    ),
  ),
  'partition': PARTITION_FLAGS,
  'process': (
    Flag('process', 'string', 'Name of the process (--list names them).'),
    Flag('model', 'string', 'Name of the model (--list names them).'),
    Flag(
      'norm',
      'string',
      'Normalisation: none, batch or group. The published emnist_cnn has none, '
      'though its paper says group.',
    ),
    Flag('num_groups', 'integer', 'S, number of groups.'),
    Flag('threshold', 'float', 'tau, confidence of pseudo-labels, in [0, 1].'),
    Flag(
      'server_weight', 'float', 'Weight of the server model in each average.'
    ),
    Flag(
      'server_replicas',
      'string',
      'Server models in each round: one, or one per_group.',
    ),
    Flag(
      'start_model',
      'string',
      'A client starts from the model of its group, or (slot) of its previous '
      "one; where it had none, of its slot's.",
    ),
    Flag(
      'client_momentum',
      'string',
      "The clients' momentum: reset every round, or kept with the slot.",
    ),
    Flag(
      'bn_statistics',
      'string',
      "Batch normalisation's moving statistics: averaged, or the server's own "
      '(local).',
    ),
    Flag(
      'views_forward',
      'string',
      'Weak and strong view in one forward pass: joint, separate, or auto '
      '(joint with batch normalisation).',
    ),
    Flag(
      'unlabelled_loss',
      'string',
      'Clients with some labels: crl, or self_training on both views.',
    ),
    Flag(
      'unlabelled_weight',
      'float',
      "Clients with some labels: weight of the unlabelled examples' loss.",
    ),
    Flag('temperature', 'float', 'T of UDA, above 0.'),
    Flag(
      'consistency_weight',
      'float',
      'lambda_0 of FedLabel, weight of its global-local consistency.',
    ),
    Flag(
      'confidence',
      'string',
      'h of FedLabel, by which an expert is chosen: variance or entropy.',
    ),
    Flag(
      'experts',
      'string',
      'Who gives the pseudo-labels of FedLabel, both, global or local.',
    ),
    Flag(
      'expert_view',
      'string',
      'The view that the experts of FedLabel see, plain, weak or strong.',
    ),
    Flag(
      'consistency_view',
      'string',
      "The view of FedLabel's consistency term, plain or strong.",
    ),
    Flag(
      'kl_direction',
      'string',
      "The divergence in FedLabel's consistency, printed or reverse.",
    ),
    Flag(
      'unlabelled_mean',
      'string',
      "What FedLabel's loss is a mean over: all unlabelled examples, or those "
      'that passed the threshold.',
    ),
    *fedmatch_flags.FLAGS,
    Flag('proximal_strength', 'float', 'mu of FedProx, also in FedNova.'),
    Flag('control_update', 'string', 'SCAFFOLD: from_steps, full_gradient.'),
    *fedul_flags.FLAGS,
    Flag(
      'client_weighting', 'string', 'Weights of clients: examples or uniform.'
    ),
    Flag(
      'proxy_task',
      'string',
      'What encoders learn without labels: reconstruction (binary '
      'cross-entropy), reconstruction_mse or rotation.',
    ),
    Flag(
      'ssjo_loss_weight',
      'float',
      "Weight of the proxy task's loss beside the classifier's.",
    ),
    Flag(
      'labelled_batch_probability',
      'float',
      'Probability of a labelled minibatch, in [0, 1]; by default the labelled '
      "examples' share of the client's.",
    ),
    Flag(
      'idle_momentum',
      'string',
      'Weights that get no gradient in a step of ssjo: momentum carries them '
      'on (coasts), or they and their momentum stay as they are (rests).',
    ),
    Flag(
      'pretraining_rounds',
      'integer',
      'Rounds of --total_rounds that go to the proxy task, the first ones; by '
      'default half of them.',
    ),
    Flag(
      'supervised_rounds',
      'integer',
      'Rounds before there are pseudo-labels; by default 40% of them.',
    ),
    Flag(
      'pretraining_images',
      'string',
      'Images of the pre-training: all, or the unlabelled ones alone.',
    ),
    Flag(
      'encoder_training',
      'string',
      'The encoder after the pre-training: fine_tuned or frozen.',
    ),
    Flag(
      'setting',
      'string',
      'federated, or central: one client that holds all the data and keeps its '
      'momentum, in rounds of one epoch.',
    ),
    Flag(
      'augmentation',
      'string',
      'The strong view behind mirror and crop: fixmatch (2 operations '
      'of random strength and a grey square), or RandAugment, N operations of '
      'strength M, rand_augment_1_10, rand_augment_10_1; weak has nothing '
      'behind them.',
    ),
    Flag('augment_flip', 'boolean', 'Whether images are mirrored at random.'),
    Flag(
      'augment_crop',
      'integer',
      'Pixels by which images are moved at random, at most, in each direction '
      '(3 of 28, 4 of 32, else an eighth); 0 leaves them in place.',
    ),
    Flag(
      'augment_rotation',
      'float',
      'Degrees by which images are turned at random, at most, either way; '
      'without it they are not.',
    ),
    *semifl_flags.FLAGS,
    *SET_FLAGS,
  ),
  'client optimiser': (
    Flag('batch_size', 'integer', 'B, examples in a minibatch.'),
    Flag(
      'labelled_batch_size',
      'integer',
      'Labelled examples beside the minibatch; by default --batch_size.',
    ),
    Flag('labelled_steps', 'integer', 'tau of FedLabel, in a round.'),
    Flag(
      'unlabelled_steps',
      'integer',
      "tau' of FedLabel, in a round; by default --labelled_steps.",
    ),
    Flag('local_steps', 'integer', 'T, steps of a client in a round.'),
    Flag(
      'local_epochs',
      'integer',
      "Passes over a client's examples in a round, instead of --local_steps.",
    ),
    Flag(
      'epoch_batches',
      'string',
      'Passes of --local_epochs: separate (the last minibatch of each may be '
      'smaller) or continuous (only the very last one).',
    ),
    Flag(
      'match_local_steps',
      'boolean',
      'As many steps as --local_epochs passes over all examples would take, '
      'labelled or not: those of ssjo.',
    ),
    Flag(
      'client_optimizer',
      'string',
      "The clients' optimiser, sgd or adam; also that of labelled training at "
      'the server.',
    ),
    Flag('learning_rate', 'float', "The clients' learning rate."),
    Flag('momentum', 'float', 'Momentum, in [0, 1).'),
    Flag('nesterov', 'boolean', "Whether momentum is Nesterov's."),
    Flag('weight_decay', 'float', 'Coupled weight decay.'),
    Flag(
      'client_clip_norm',
      'float',
      "Largest norm of a client's gradient, above 0; without, none is clipped.",
    ),
    Flag(
      'schedule',
      'string',
      'Learning rate: constant, cosine over steps (paper 1, Eq. 11) or '
      'exponential over rounds.',
    ),
    Flag(
      'schedule_decay',
      'float',
      'Exponential: the factor of each round, in (0, 1].',
    ),
    Flag(
      'schedule_steps', 'integer', 'Cosine: steps EM/B of the whole schedule.'
    ),
    Flag('schedule_coefficient', 'float', 'Cosine: the coefficient c.'),
    Flag('schedule_warmup_steps', 'integer', 'Cosine: steps of warm-up eM/B.'),
    Flag('schedule_scale', 'float', 'Stretches the schedule by this factor.'),
  ),
  'server': (
    Flag('server_steps', 'integer', 'Labelled steps of the server in a round.'),
    Flag(
      'server_epochs',
      'integer',
      'Passes of the server over its labelled examples in a round.',
    ),
    Flag('server_batch_size', 'integer', "Examples in the server's minibatch."),
    Flag(
      'server_clip_norm',
      'float',
      "Largest norm of the server's gradient; by default --client_clip_norm.",
    ),
    Flag(
      'server_learning_rate',
      'float',
      "The server's learning rate; by default --learning_rate, of fedadam "
      '0.01, of scaffold and fedlabel 1.',
    ),
    Flag(
      'server_warmup_rounds',
      'integer',
      'First rounds, in which only the server trains.',
    ),
  ),
  'run': (
    Flag('total_rounds', 'integer', 'Rounds to train.'),
    Flag('clients_per_round', 'integer', 'C, participating clients.'),
    Flag('rounds_per_evaluation', 'integer', 'Rounds between evaluations.'),
    Flag(
      'evaluation_offset',
      'integer',
      'Rounds before the first evaluation, if fewer: with 1 and 10 rounds '
      'between, it is after rounds 1, 11, 21 and so on, and the last.',
    ),
    Flag(
      'gradient_diversity_clients',
      'integer',
      'Clients on which gradient diversity is measured, the same ones for '
      'every process; 0 for none.',
    ),
    Flag(
      'rounds_per_gradient_diversity',
      'integer',
      'Rounds between measurements of gradient diversity.',
    ),
    Flag(
      'rounds_per_client_evaluation',
      'integer',
      'Native split: rounds between evaluations of each client, and of the '
      'whole, from the same pass (also one at the end); 0 for none.',
    ),
    Flag('rounds_per_checkpoint', 'integer', 'Rounds between checkpoints.'),
    Flag('seed', 'integer', 'Root of all randomness.'),
    Flag(
      'seeds',
      'string',
      'Several seeds instead, such as 0,1,2: a run each, one after the other, '
      'in <run_dir>_seed<n>, and a line with mean and interval at the end.',
    ),
    Flag(
      'recipe',
      'string',
      'TABLE:ROW, a row of a published table; flags given beside it win '
      '(python -m experiments.reproduce --list names them).',
    ),
    Flag(
      'recipe_scale',
      'float',
      "Share of the recipe's rounds, in (0, 1]: rounds, schedule and "
      'server_warmup_rounds are shortened together.',
    ),
    Flag('precision', 'string', 'float32 or bfloat16.'),
    Flag(
      'workers',
      'integer',
      'Worker processes on this machine, which share the clients of a round. '
      'One uses all cores already: more of them are for trying this out. A '
      'run may be resumed with another number; its results may then differ '
      'in their last bits.',
    ),
    Flag(
      'worker_addresses',
      'string',
      "Instead of --workers: host:port,... of TFF's worker_binary, started on "
      'other machines. They must find the client store, a file in '
      '--cache_dir, at the same path as this machine. One that is lost is '
      'given up, and the others take over its clients.',
    ),
    Flag(
      'worker_timeout',
      'float',
      'Seconds without an answer after which a worker is given up. One of '
      'this machine is killed then, and a new one repeats the round. A worker '
      'that computes for long does answer.',
    ),
    Flag(
      'insecure_workers',
      'boolean',
      'Allows --worker_addresses beyond this machine: workers know neither '
      'encryption nor passwords, and whoever reaches their ports can run '
      'programs there.',
    ),
    Flag(
      'run_dir',
      'string',
      'Folder of the results, a new or an empty one; a run that is there is '
      'resumed. By default runs/<process>_<dataset>_seed<seed>.',
    ),
    Flag('list', 'boolean', 'Lists processes, data sets and models, and ends.'),
  ),
}
