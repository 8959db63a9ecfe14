#!/bin/bash
#SBATCH --job-name=tff_ssl
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
# Starts a Ray cluster on the nodes of a SLURM job, runs on it, and ends it:
#   sbatch cluster/slurm.sh --process=grouping --dataset=emnist --run_dir=...
# Submit it from a checkout on a shared disk, in which `make ray` was run. Store
# and states lie on that disk, too. Submitted again, it goes on.
set -euo pipefail
ray=.venv/bin/ray
port=6379
cores=${SLURM_CPUS_PER_TASK:?is set by SLURM}
head=$(hostname)

$ray start --head --port=$port --num-cpus="$cores"
trap '$ray stop' EXIT
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    $ray start --address="$head:$port" --num-cpus="$cores" --block &
fi
.venv/bin/python -m experiments.run "$@" --cluster=auto
