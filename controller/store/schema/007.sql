-- The outbox says how far each action is: pending, launching (an executor is asked, or was), done. An attempt whose start
-- is launching may be there already. Until then nothing said so: each start that is not done may have been asked for.
ALTER TABLE actions ADD COLUMN state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'launching', 'done'));
UPDATE actions SET state = 'done' WHERE done_at_ms IS NOT NULL;
UPDATE actions SET state = 'launching' WHERE done_at_ms IS NULL AND kind = 'start_attempt';
DROP INDEX actions_to_do;
CREATE INDEX actions_to_do ON actions (id) WHERE state <> 'done';
