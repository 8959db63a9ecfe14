"""What a user's process cannot have."""

import dataclasses

from tff_ssl.algorithms import fed_avg
from tff_ssl.common.setting import Scope, Setting, condition

FED_AVG = fed_avg.SPECS[0]


def changed(**more):
  return dataclasses.replace(FED_AVG, **{'name': 'own', **more})


def with_settings(*settings, **more):
  return changed(settings=(*FED_AVG.settings, *settings), **more)


def with_setting(*arguments, **more):
  return with_settings(Setting(*arguments, **more))


def fail(*arguments):
  raise RuntimeError('no such thing')


def answer(*arguments):
  return None


OF_EVERY_RUN = with_setting('total_rounds', int, 'Rounds.', at_least=1)
OTHER_TYPE = with_setting('threshold', str, 'A name.')
NO_FLAG = with_setting('two words', int, 'Two.')
OF_ABSL = with_setting('flagfile', int, 'Two.')
OF_MACHINE = with_setting('cores', int, 'Cores.', scope=Scope.MACHINE)
NAMED_AS_ALIAS = with_setting('root_output_dir', str, 'A folder.')
ALIAS_IS_NAME = with_setting('cores', int, 'Cores.', aliases=('seed',))
ALIAS_IS_ALIAS = with_setting(
  'cores', int, 'Cores.', aliases=('client_batch_size',)
)
ALIAS_OF_OTHERS = with_setting(
  'threshold', float, 'A bound.', aliases=('sureness',)
)
ALIAS_IS_NO_FLAG = with_setting('cores', int, 'Cores.', aliases=('two words',))
# Beside those of `own_partition`.
ROWS = with_setting('rows', str, 'Rows.')
SIZES = with_setting('sizes', int, 'S.', aliases=('rows',))
TWICE = with_settings(
  Setting('cores', int, 'Cores.'), Setting('cores', int, 'Cores.')
)
OF_EACH_OTHER = with_settings(
  Setting('cores', int, 'Cores.'),
  Setting('width', int, 'Width.', aliases=('cores',)),
)
COUNTS_ROUNDS = with_setting(
  'calm_rounds', int, 'Calm ones.', rounds='share', phase='calm'
)
NO_RECORD = with_settings('cores')

SLASH = changed(name='../one')
BLANK = changed(name='my own')
UNNAMED = changed(name='')
BUILT_IN = changed(name='grouping')

MISSPELT = changed(defaults={'local_epoch': 2})
MISSPELT_DERIVED = changed(derive=lambda values, given: {'local_epoch': 2})
BAD_DEFAULT = changed(defaults={'learning_rate': -1.0})
BAD_CHOICE = changed(defaults={'schedule': 'cosin'})
BAD_PARTITION = changed(defaults={'partition': 'natve'})
BAD_RECORD = with_setting('cores', int, 'Cores.', default=0, at_least=1)
BAD_MODEL = changed(defaults={'model': 'dens'})
NO_SEED = changed(defaults={'seed': None})
NO_MAPPING = changed(derive=answer)
DERIVE_FAILS = changed(derive=fail)
CHECK_FAILS = changed(check=fail)
CONDITION_FAILS = with_setting(
  'cores', int, 'Cores.', used_when=(condition('cores')(fail),)
)
