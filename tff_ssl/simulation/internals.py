"""What simulations need of TFF and TensorFlow beyond their public interfaces.

It is all here, so that a new version of either is a matter of this module.
"""

from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.python.eager.cancellation import CancellationManager
from tensorflow.python.eager.context import context as eager_context
from tensorflow.python.eager.execute import execute_with_cancellation
from tensorflow.python.framework.graph_to_function_def import (
  graph_to_function_def,
)
from tensorflow_federated.python.core.impl.execution_contexts.mergeable_comp_execution_context import (  # noqa: E501
  MergeableCompExecutionContextValue,
)
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import (  # noqa: E501
  infer_cardinalities,
)
from tensorflow_federated.python.core.impl.types.type_conversions import (
  type_to_tf_structure,
)
from tensorflow_federated.python.core.impl.utils.tensorflow_utils import (
  make_data_set_from_elements,
)
from tensorflow_federated.python.tensorflow_libs.serialization_utils import (
  unpack_graph_def,
)

__all__ = [
  'CancellationManager',
  'ConfigProto',
  'MergeableCompExecutionContextValue',
  'eager_context',
  'execute_with_cancellation',
  'graph_to_function_def',
  'infer_cardinalities',
  'make_data_set_from_elements',
  'type_to_tf_structure',
  'unpack_graph_def',
]
