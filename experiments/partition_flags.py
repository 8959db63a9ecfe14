"""The flags that say how clients get their data (`experiments.flag_table`)."""

from experiments.flag import Flag

PARTITION_FLAGS: tuple[Flag, ...] = (
  Flag(
    'partition',
    'string',
    'How clients get data: native, r, dirichlet, pooled, u_sets or own_sets; '
    'by default native where the data say who owns each example.',
  ),
  Flag(
    'num_clients',
    'integer',
    'K, number of clients; by default all there are of a native split.',
  ),
  Flag('noniid_r', 'float', 'R of the r-partition, in [0, 1].'),
  Flag(
    'dirichlet_alpha',
    'float',
    'alpha of the Dirichlet partition, in [0.001, 1e6]; small is uneven.',
  ),
  Flag(
    'min_client_examples',
    'integer',
    'Dirichlet partition: the least number of examples of a client.',
  ),
  Flag(
    'sets_per_client',
    'string',
    'u_sets: M, sets of each client, or M_c of each, separated by commas.',
  ),
  Flag(
    'client_examples',
    'integer',
    'u_sets: n_c, examples of each client; by default as many as there are.',
  ),
  Flag(
    'priors',
    'string',
    'u_sets: class distributions of the clients, iid, or noniid with two '
    'majority classes each.',
  ),
  Flag(
    'u_set_recipe',
    'string',
    'u_sets: drawn as the text of the FedUL paper says (paper), or as the code '
    'of its authors does (code: each majority class is 47% of what a client '
    'draws its sets from, IID data shrink with M, classes may run out; '
    'code_rows, their FedUL on CIFAR-10: IID data do not shrink).',
  ),
  Flag(
    'set_repeats',
    'string',
    'u_sets: whether an example may lie in several sets of its client '
    '(across_sets, as the recipes of the code do) or not (none).',
  ),
  Flag(
    'known_priors',
    'string',
    'u_sets: the class priors that clients are told, the exact shares in their '
    'sets, or the nominal ones that these were drawn from.',
  ),
  Flag(
    'prior_noise',
    'float',
    'u_sets and own_sets: epsilon, noise in the class priors that clients are '
    'told.',
  ),
  Flag(
    'noise_formula',
    'string',
    'Factors of --prior_noise: printed, 1 + gamma (2 epsilon - 1) as in the '
    'FedUL paper, least near 0.5; or symmetric, 1 + epsilon (2 gamma - 1), '
    'which grows with epsilon.',
  ),
  Flag('server_examples', 'integer', 'N_s, labelled examples at the server.'),
  Flag(
    'labelled_examples',
    'integer',
    'N_s of a process without labels at the server: labelled examples, dealt '
    'to the clients evenly.',
  ),
  Flag(
    'server_writers',
    'string',
    "Native split: the server's examples come from writers who never take "
    'part: spread, as many writers as a class has labels, but at most a tenth '
    'of all unless labels are short; or held_out, often a single writer. '
    'Or they come from everyone.',
  ),
  Flag(
    'labelled_fraction',
    'float',
    'Instead of --mask_ratio: the share of labels that is left.',
  ),
  Flag(
    'mask_ratio',
    'float',
    "Share of each client's labels that is hidden, in [0, 1]; each keeps at "
    'least one.',
  ),
  Flag(
    'mask',
    'string',
    'Which labels --mask_ratio hides: the same ones in the whole run '
    '(fixed), or others in every pass over the data (redrawn).',
  ),
)
