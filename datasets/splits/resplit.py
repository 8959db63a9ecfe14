"""The ways to divide a source into training, validation and test split."""

from datasets.sources.source import Source
from datasets.splits import held_out_split, per_client_split, pooled_split
from tff_ssl.setting import Setting

SPLIT = Setting(
  'split',
  str,
  "Train and test: the data set's own, 80_5_15 (all examples pooled and cut "
  'anew by the seed, 80% train, 5% validation, 15% test), 80_20 (the last '
  'fifth of train is for validation), 80_20_uniform (and as many test examples '
  'of each class), or 90_10_per_client (a tenth of the training examples of '
  'each client is for validation; for data that name their clients).',
  choices=(
    pooled_split.OWN,
    pooled_split.CUT,
    held_out_split.HELD_OUT,
    held_out_split.HELD_OUT_UNIFORM,
    per_client_split.PER_CLIENT,
  ),
  optional=True,
  if_none=pooled_split.OWN,
)


def resplit(source: Source, split: str | None, seed: int) -> Source:
  """Returns a source with the chosen splits.

  Args:
    source: The source.
    split: One of `SPLIT.choices`; `None` stands for the source's own splits.
    seed: Fixes the random draws; at least 0.

  Raises:
    ValueError: If there is no such choice, or it does not suit the source.
  """
  SPLIT.check(split)
  if source.server and split not in (pooled_split.OWN, None):
    raise ValueError(
      f'split={split!r} does not fit {source.name}, whose files say which '
      f"examples are the server's: choose split={pooled_split.OWN!r}."
    )
  if split == pooled_split.CUT:
    return pooled_split.cut(source, seed)
  if split in (pooled_split.OWN, None):
    return source
  if split == per_client_split.PER_CLIENT:
    return per_client_split.hold_out_per_client(source, seed)
  source = held_out_split.hold_out(source)
  if split == held_out_split.HELD_OUT_UNIFORM:
    source = held_out_split.with_uniform_test(source, seed)
  return source
