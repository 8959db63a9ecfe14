"""What the server does after aggregation.

```
finalizers          the aggregate is applied to the weights
server_training     the server trains on its labelled examples, too
alternate_training  it trains afterwards, on the model that clients gave it
static_statistics   it computes statistics of batch normalisation anew
```
"""
