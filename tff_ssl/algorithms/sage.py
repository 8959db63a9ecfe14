"""SAGE: FedAvg, whose clients label by the model they train and that received.

Liu et al., Mind the Gap: Confidence Discrepancy Can Guide Federated
Semi-Supervised Learning Across Pseudo-Mismatch (CVPR 2025, arXiv 2503.13227). A
client's loss is cross-entropy on its labelled examples, and on all of them the
divergence to the strong view from soft labels that both models make of the weak
one (`tff_ssl.objectives.consistency.corrected_labels`):

```
L = CE(labelled) + 1/|B| sum 1[p or q is sure] KL(label(alpha(x)) || f_w(A(x)))
```

A client sends what it sends in FedAvg, so secure sums serve it.

Augmentation, steps and rates are by default those of the other methods at
clients here (`tff_ssl.algorithms.fedlabel`).
"""

from tff_ssl.algorithms import fedlabel

SPEC = fedlabel.consistency_at_clients(
  'sage',
  'FedAvg, labels by the trained and the received model, by how sure they are.',
  'sage',
  source='Liu et al. 2025, arXiv 2503.13227',
)
