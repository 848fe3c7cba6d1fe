#!/usr/bin/env bash
# A Slurm of one node on this machine, without systemd, with two GPUs that are declared and not there (files).
# usage: slurm_node.sh <folder>; needs Debian's slurmctld, slurmd, slurm-client and munge, and root.
set -euo pipefail
home=$(realpath -m "$1"); host=$(hostname -s)
mkdir -p "$home"/{ctl,d,log} /run/munge
for i in 0 1; do [ -e "$home/gpu$i" ] || mknod "$home/gpu$i" c 1 3; done  # /dev/null twice: Slurm wants devices
if ! pgrep -x munged >/dev/null; then
  [ -f /etc/munge/munge.key ] || dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 status=none
  chown -R munge: /etc/munge /run/munge /var/lib/munge /var/log/munge; chmod 400 /etc/munge/munge.key
  runuser -u munge -- /usr/sbin/munged
fi
cat > "$home/slurm.conf" <<C
ClusterName=alone
SlurmctldHost=$host
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
StateSaveLocation=$home/ctl
SlurmdSpoolDir=$home/d
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/log/slurmctld.log
SlurmdLogFile=$home/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=$host CPUs=$(nproc) RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
C
cat > "$home/gres.conf" <<C
NodeName=$host Name=gpu File=$home/gpu[0-1]
C
export SLURM_CONF="$home/slurm.conf"
/usr/sbin/slurmctld -f "$SLURM_CONF"
/usr/sbin/slurmd -f "$SLURM_CONF"
for _ in $(seq 50); do sinfo -h -o %t 2>/dev/null | grep -qE 'idle|mix' && break; sleep 0.2; done
sinfo
