-- The number of an attempt in its scheduler has columns. Until then only the name of the attempt told the number.
ALTER TABLE attempts ADD COLUMN scheduler_job INTEGER;
ALTER TABLE attempts ADD COLUMN scheduler_element INTEGER;
UPDATE attempts
SET scheduler_job = CAST(substr(handle, length('Slurm job ') + 1) AS INTEGER),
    scheduler_element = CASE WHEN instr(handle, '_') > 0 THEN CAST(substr(handle, instr(handle, '_') + 1) AS INTEGER) END
WHERE handle LIKE 'Slurm job %';
