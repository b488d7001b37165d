-- What happened, in the order in which the controller learned it. Every other table about jobs can be rebuilt from events.
CREATE TABLE events (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id      INTEGER NOT NULL REFERENCES jobs (id),
  version     INTEGER NOT NULL CHECK (version > 0),
  at_ms       INTEGER NOT NULL,
  type        TEXT    NOT NULL,
  attempt     INTEGER NOT NULL,                          -- 0: about the whole job
  payload     TEXT    NOT NULL CHECK (json_valid(payload)),
  state_after TEXT    NOT NULL,
  text        TEXT    NOT NULL,
  UNIQUE (job_id, version)
) STRICT;
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;

-- Projections, written in the transaction of the event that changed them.
CREATE TABLE jobs (
  id                   INTEGER PRIMARY KEY,
  request_id           TEXT    UNIQUE,                   -- null: submitted without one
  spec_json            TEXT    NOT NULL,
  name                 TEXT    NOT NULL,
  user                 TEXT    NOT NULL,
  is_command           INTEGER NOT NULL CHECK (is_command IN (0, 1)),
  state                TEXT    NOT NULL,
  reason               TEXT    NOT NULL,
  version              INTEGER NOT NULL,
  last_checkpoint_step INTEGER NOT NULL,
  submitted_at_ms      INTEGER NOT NULL,
  started_at_ms        INTEGER,
  ended_at_ms          INTEGER,
  next_attempt_at_ms   INTEGER
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, id);

CREATE TABLE attempts (
  job_id            INTEGER NOT NULL REFERENCES jobs (id),
  number            INTEGER NOT NULL CHECK (number > 0),
  state             TEXT    NOT NULL,
  cause             TEXT    NOT NULL,
  reason            TEXT    NOT NULL,
  reason_started    TEXT    NOT NULL,
  culprit           INTEGER,
  culprit_code      INTEGER,
  culprit_signal    INTEGER,
  started_at_ms     INTEGER,
  running_at_ms     INTEGER,
  ended_at_ms       INTEGER,
  resumed_from_step INTEGER NOT NULL,
  handle            TEXT    NOT NULL,
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

-- The outbox: what the controller has to do outside the database.
CREATE TABLE actions (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id   INTEGER NOT NULL REFERENCES events (id),
  idx        INTEGER NOT NULL,
  job_id     INTEGER NOT NULL REFERENCES jobs (id),
  kind       TEXT    NOT NULL,
  payload    TEXT    NOT NULL CHECK (json_valid(payload)),
  done_at_ms INTEGER,                                    -- null: not done yet
  UNIQUE (event_id, idx)
) STRICT;
CREATE INDEX actions_to_do ON actions (id) WHERE done_at_ms IS NULL;

-- One optimizer step of one rank. A real is null if it is "not a number".
CREATE TABLE metrics (
  job_id             INTEGER NOT NULL,
  attempt            INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  rank               INTEGER NOT NULL,
  loss               REAL,
  tokens_per_s       REAL,
  step_ms            REAL,
  memory_bytes       INTEGER NOT NULL,
  memory_peak_bytes  INTEGER NOT NULL,
  bytes_communicated INTEGER NOT NULL,
  learning_rate      REAL,
  grad_norm          REAL,
  has_validation     INTEGER NOT NULL CHECK (has_validation IN (0, 1)),
  validation_loss    REAL,
  at_ms              INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt, step, rank)
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
