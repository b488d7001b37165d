-- Values that ranks report for each step become series with names. Before this version there were five, each with a column
-- of its own. What a rank measures of itself stays a row of fixed columns.
CREATE TABLE series (
  job_id         INTEGER NOT NULL,
  id             INTEGER NOT NULL CHECK (id > 0),         -- in the order in which the series first appeared
  name           TEXT    NOT NULL,
  unit           TEXT    NOT NULL,
  better         TEXT    NOT NULL,
  over_ranks     TEXT    NOT NULL,
  newest_attempt INTEGER,                                 -- null: the series has no value
  newest_step    INTEGER,
  PRIMARY KEY (job_id, id),
  UNIQUE (job_id, name)
) STRICT, WITHOUT ROWID;

-- A real is null if it is "not a number".
CREATE TABLE series_values (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step    INTEGER NOT NULL,
  series  INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  value   REAL,
  PRIMARY KEY (job_id, attempt, step, series, rank)
) STRICT, WITHOUT ROWID;

-- What one rank measured of itself in one optimizer step; null: not measured.
CREATE TABLE rank_steps (
  job_id             INTEGER NOT NULL,
  attempt            INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  rank               INTEGER NOT NULL,
  step_ms            REAL,
  memory_bytes       INTEGER,
  memory_peak_bytes  INTEGER,
  bytes_communicated INTEGER,
  at_ms              INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt, step, rank)
) STRICT, WITHOUT ROWID;

-- Before this version 0 meant "not measured" in columns where no real value is 0.
INSERT INTO rank_steps
SELECT job_id, attempt, step, rank, nullif(step_ms, 0), nullif(memory_bytes, 0), nullif(memory_peak_bytes, 0),
       bytes_communicated, at_ms
FROM metrics;

INSERT INTO series_values
SELECT job_id, attempt, step, 1, 0, loss FROM metrics WHERE rank = 0
UNION ALL
SELECT job_id, attempt, step, 2, 0, tokens_per_s FROM metrics WHERE rank = 0
UNION ALL
SELECT job_id, attempt, step, 3, 0, learning_rate FROM metrics WHERE rank = 0
UNION ALL
SELECT job_id, attempt, step, 4, 0, grad_norm FROM metrics WHERE rank = 0
UNION ALL
SELECT job_id, attempt, step, 5, 0, validation_loss FROM metrics WHERE rank = 0 AND has_validation = 1;

-- Each series with its newest step of its newest attempt.
WITH known (id, name, unit, better) AS (
  VALUES (1, 'loss', 'nats', 'lower'),
         (2, 'tokens_per_s', 'tokens/s', 'higher'),
         (3, 'learning_rate', '', 'neither'),
         (4, 'grad_norm', '', 'neither'),
         (5, 'validation/loss', 'nats', 'lower')
),
newest_attempts (job_id, series, attempt) AS (
  SELECT job_id, series, max(attempt) FROM series_values GROUP BY job_id, series
)
INSERT INTO series
SELECT n.job_id, k.id, k.name, k.unit, k.better, 'rank0', n.attempt,
       (SELECT max(step) FROM series_values v
        WHERE v.job_id = n.job_id AND v.attempt = n.attempt AND v.series = n.series)
FROM newest_attempts n JOIN known k ON k.id = n.series;

DROP TABLE metrics;
