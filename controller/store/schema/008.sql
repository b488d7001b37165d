-- The points that a bucket of one curve keeps. A bucket holds 32, 1,024 or 32,768 steps (level 0, 1, 2). Plots of long
-- jobs are read from buckets. The rows repeat values of rank_steps and series_values, and can be made from them again.
CREATE TABLE metric_buckets (
  job_id     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  level      INTEGER NOT NULL,
  bucket     INTEGER NOT NULL,                            -- first step / width
  curve      INTEGER NOT NULL,                            -- 0: the steps; 1 to 3: measures of ranks; from 8: series 1, 2, ...
  "values"   INTEGER NOT NULL,                            -- how many were reported
  low_step   INTEGER, low_at_ms  INTEGER, low  REAL,      -- null: no value is a number
  high_step  INTEGER, high_at_ms INTEGER, high REAL,
  last_step  INTEGER, last_at_ms INTEGER, last REAL,
  gap_step   INTEGER, gap_at_ms  INTEGER,                 -- the first value that is no number; null: none
  PRIMARY KEY (job_id, attempt, level, bucket, curve)
) STRICT, WITHOUT ROWID;

-- Attempts that still need their buckets.
CREATE TABLE unsettled_attempts (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO unsettled_attempts SELECT job_id, number FROM attempts;
