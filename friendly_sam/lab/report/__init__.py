"""Reports: statistics, pictures and pages made from run folders, and from nothing else."""
