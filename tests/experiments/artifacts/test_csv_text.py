"""Names in CSV files are no formulas."""

import io

import numpy as np
import pandas as pd
import pytest

from experiments.artifacts import csv_text


@pytest.mark.parametrize('name', ['=1+1', '+A1', '-A1', '@SUM(A1)', '-', '=-1'])
def test_what_a_spreadsheet_would_run_is_text(name):
  assert csv_text.cell(name) == f"'{name}"


@pytest.mark.parametrize('name', ['a=1', '-1', '+.5', '-2e3', 'cat', '', ' =1'])
def test_numbers_and_other_names_stay(name):
  assert csv_text.cell(name) == name


def test_names_of_columns_and_rows_are_no_formulas_either():
  table = pd.DataFrame(
    {'=a': ['@b', 'c', None], 'd': [-1.5, 2, np.nan]},
    index=['+e', 'f', 'g, h'],
  )
  text = csv_text.of_table(table, index_label='i', float_format='%.1f')
  assert text == ("i,'=a,d\n'+e,'@b,-1.5\nf,c,2.0\n\"g, h\",,\n")
  assert list(table.columns) == ['=a', 'd']  # It is a copy that changes.
  plain = table.rename(columns={'=a': 'a'}, index={'+e': 'e'})
  plain.loc['e', 'a'] = 'b'
  read = pd.read_csv(io.StringIO(csv_text.of_table(plain)), index_col=0)
  pd.testing.assert_frame_equal(read, plain)
