-- What admins decide about Slurm's partitions.
CREATE TABLE partitions (
  name   TEXT PRIMARY KEY,
  policy TEXT NOT NULL CHECK (json_valid(policy))
) STRICT, WITHOUT ROWID;

-- Who changed which of them when, for ever.
CREATE TABLE audit (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms     INTEGER NOT NULL,
  user      TEXT    NOT NULL,
  action    TEXT    NOT NULL,
  partition TEXT    NOT NULL,
  before    TEXT    NOT NULL CHECK (before = '' OR json_valid(before)),
  after     TEXT    NOT NULL CHECK (after = '' OR json_valid(after))
) STRICT;
CREATE INDEX audit_by_partition ON audit (partition, id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
