-- Before this version 0 meant "from the beginning" and also "not reported", which is true of nearly every command. From
-- now on -1 means "not reported".
UPDATE attempts SET resumed_from_step = -1
WHERE resumed_from_step = 0 AND job_id IN (SELECT id FROM jobs WHERE is_command = 1);
