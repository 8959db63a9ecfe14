"""What TensorFlow Federated 0.87 has, and its next release has elsewhere.

The package names these things through this module alone, so that a move to
that release is a matter of one file. Most of them become names of the package
`federated_language`; what does not is listed apart.
"""

import tensorflow_federated as tff

# Types, placements and values: `federated_language`.
CLIENTS = tff.CLIENTS
SERVER = tff.SERVER
Computation = tff.Computation
FederatedType = tff.FederatedType
FunctionType = tff.FunctionType
SequenceType = tff.SequenceType
StructType = tff.StructType
TensorType = tff.TensorType
Type = tff.Type
Value = tff.Value
to_type = tff.types.to_type

# Computations and what they call: `federated_language`.
federated_aggregate = tff.federated_aggregate
federated_broadcast = tff.federated_broadcast
federated_computation = tff.federated_computation
federated_eval = tff.federated_eval
federated_map = tff.federated_map
federated_secure_sum_bitwidth = tff.federated_secure_sum_bitwidth
federated_sum = tff.federated_sum
federated_value = tff.federated_value
federated_zip = tff.federated_zip

# Contexts and compiled computations: `federated_language.framework`.
AsyncContext = tff.framework.AsyncContext
Block = tff.framework.Block
Call = tff.framework.Call
CompiledComputation = tff.framework.CompiledComputation
ConcreteComputation = tff.framework.ConcreteComputation
ExecutorFactory = tff.framework.ExecutorFactory
Intrinsic = tff.framework.Intrinsic
Lambda = tff.framework.Lambda
Literal = tff.framework.Literal
Reference = tff.framework.Reference
RetryableError = tff.framework.RetryableError
Selection = tff.framework.Selection
Struct = tff.framework.Struct
SyncContext = tff.framework.SyncContext
SyncExecutionContext = tff.framework.SyncExecutionContext
get_context_stack = tff.framework.get_context_stack
set_default_context = tff.framework.set_default_context
type_to_py_container = tff.types.type_to_py_container

# Programs: `federated_language.program`.
FederatedDataSource = tff.program.FederatedDataSource
FederatedDataSourceIterator = tff.program.FederatedDataSourceIterator
MemoryReleaseManager = tff.program.MemoryReleaseManager
NativeFederatedContext = tff.program.NativeFederatedContext

# In `tff.tensorflow`, in inner modules, or no longer anywhere.
EncodedSumFactory = tff.aggregators.EncodedSumFactory
assert_not_contains_unsecure_aggregation = (
  tff.test.assert_not_contains_unsecure_aggregation
)
compression_aggregator = tff.learning.compression_aggregator
deserialize_computation = tff.framework.deserialize_computation
from_container = tff.structure.from_container
iter_elements = tff.structure.iter_elements
name_list = tff.structure.name_list
serialize_computation = tff.framework.serialize_computation
type_to_tf_tensor_specs = tff.types.type_to_tf_tensor_specs
