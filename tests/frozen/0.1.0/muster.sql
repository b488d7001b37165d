PRAGMA user_version = 13;
PRAGMA application_id = 1836282994;
BEGIN TRANSACTION;
CREATE TABLE actions (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id   INTEGER NOT NULL REFERENCES events (id),
  idx        INTEGER NOT NULL,
  job_id     INTEGER NOT NULL REFERENCES jobs (id),
  kind       TEXT    NOT NULL,
  payload    TEXT    NOT NULL CHECK (json_valid(payload)),
  done_at_ms INTEGER,                                    -- null: not done yet
  state      TEXT    NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'launching', 'done')),
  share      TEXT CHECK (share IS NULL OR json_valid(share)), -- of musterd's own machine; null: nothing
  UNIQUE (event_id, idx)
) STRICT;
INSERT INTO "actions" VALUES(1,1,0,1,'start_attempt','{"attempt":1,"not_before_ms":1796049069790}',1796049069815,'done',NULL);
INSERT INTO "actions" VALUES(2,5,0,2,'start_attempt','{"attempt":1,"not_before_ms":1796049070343}',1796049070373,'done',NULL);
INSERT INTO "actions" VALUES(3,7,0,2,'start_attempt','{"attempt":2,"not_before_ms":1796049070375}',1796049070399,'done',NULL);
INSERT INTO "actions" VALUES(4,10,0,3,'start_attempt','{"attempt":1,"not_before_ms":1796049070525}',1796049070559,'done',NULL);
INSERT INTO "actions" VALUES(5,20,0,4,'start_attempt','{"attempt":1,"not_before_ms":1796049071385}',1796049071437,'done',NULL);
INSERT INTO "actions" VALUES(6,21,0,5,'start_attempt','{"attempt":1,"not_before_ms":1796049071385}',1796049071431,'done',NULL);
INSERT INTO "actions" VALUES(7,22,0,6,'start_attempt','{"attempt":1,"not_before_ms":1796049071385}',1796049071431,'done',NULL);
INSERT INTO "actions" VALUES(8,30,0,7,'stop_attempt','{"attempt":1,"save":false,"reason":"cancelled by root"}',1796049071603,'done',NULL);
INSERT INTO "actions" VALUES(9,31,0,8,'start_attempt','{"attempt":1,"not_before_ms":1796049071628}',1796049071653,'done',NULL);
INSERT INTO "actions" VALUES(10,34,0,8,'remove_files','{}',1796049071804,'done',NULL);
INSERT INTO "actions" VALUES(11,35,0,9,'start_attempt','{"attempt":1,"not_before_ms":1796049071845}',NULL,'pending',NULL);
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
  resumed_from_step INTEGER NOT NULL,                    -- -1: not reported
  handle            TEXT    NOT NULL,
  queued_at_ms      INTEGER,                             -- null: it did not wait in a scheduler's queue
  scheduler_job     INTEGER,
  scheduler_element INTEGER,
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "attempts" VALUES(1,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1796049069813,1796049069813,1796049070220,-1,'@DATA@/jobs/1/attempt-1',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(2,1,'ended','failed','rank 0 exited with 3: ValueError: bad','submitted',0,3,0,1796049070368,1796049070368,1796049070374,-1,'@DATA@/jobs/2/attempt-1',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(2,2,'ended','failed','rank 0 exited with 3: ValueError: bad','attempt 1: rank 0 exited with 3: ValueError: bad',0,3,0,1796049070398,1796049070398,1796049070406,-1,'@DATA@/jobs/2/attempt-2',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(3,1,'ended','completed','every rank exited with 0: all 4 steps done','submitted',NULL,NULL,NULL,1796049070556,1796049070958,1796049071236,0,'@DATA@/jobs/3/attempt-1',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(4,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1796049071435,1796049071435,1796049071445,-1,'@DATA@/jobs/4/attempt-1',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(5,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1796049071428,1796049071428,1796049071432,-1,'@DATA@/jobs/5/attempt-1',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(6,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1796049071428,1796049071428,1796049071432,-1,'@DATA@/jobs/6/attempt-1',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(8,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1796049071652,1796049071652,1796049071653,-1,'@DATA@/jobs/8/attempt-1',NULL,NULL,NULL);
CREATE TABLE audit (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms     INTEGER NOT NULL,
  user      TEXT    NOT NULL,
  action    TEXT    NOT NULL,
  partition TEXT    NOT NULL,                            -- '': about all of musterd
  before    TEXT    NOT NULL CHECK (before = '' OR json_valid(before)),
  after     TEXT    NOT NULL CHECK (after = '' OR json_valid(after))
) STRICT;
INSERT INTO "audit" VALUES(1,1796049071822,'root','drain','','','{"since_ms":1796049071822,"user":"root","reason":"release"}');
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
INSERT INTO "events" VALUES(1,1,1,1796049069790,'job_submitted',0,'{"v":1,"name":"curve","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":true}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(2,1,2,1796049069813,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/1/attempt-1","node":"node1","pids":[5011],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(3,1,3,1796049070217,'rank_joined',1,'{"v":1,"attempt":1,"rank":0,"node":"node1","pid":5011}','running','rank 0 joined');
INSERT INTO "events" VALUES(4,1,4,1796049070220,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"","error":"","step":3,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":3}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(5,2,1,1796049070343,'job_submitted',0,'{"v":1,"name":"fails","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":1,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1,"backoff_max_ms":1,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(6,2,2,1796049070368,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/2/attempt-1","node":"node1","pids":[5087],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(7,2,3,1796049070374,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":3,"signal":0},"out_of_memory":false,"last_words":"","error":"ValueError: bad","step":0,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":0}','waiting','rank 0 exited with 3: ValueError: bad; attempt 2 starts in 1 ms (failure 1 of 1)');
INSERT INTO "events" VALUES(8,2,4,1796049070398,'attempt_launched',2,'{"v":1,"attempt":2,"handle":"@DATA@/jobs/2/attempt-2","node":"node1","pids":[5117],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 2 started on node1 (attempt 1: rank 0 exited with 3: ValueError: bad)');
INSERT INTO "events" VALUES(9,2,5,1796049070406,'rank_exited',2,'{"v":1,"attempt":2,"rank":0,"exit":{"code":3,"signal":0},"out_of_memory":false,"last_words":"","error":"ValueError: bad","step":0,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":0}','failed','rank 0 exited with 3: ValueError: bad; failed 2 times without anything new in its checkpoint folder (limit 1)');
INSERT INTO "events" VALUES(10,3,1,1796049070525,'job_submitted',0,'{"v":1,"name":"training","user":"root","is_command":false,"world_size":2,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 2 ranks');
INSERT INTO "events" VALUES(11,3,2,1796049070556,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/3/attempt-1","node":"node1","pids":[5155,5158],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(12,3,3,1796049070944,'rank_joined',1,'{"v":1,"attempt":1,"rank":0,"node":"node1","pid":5155}','running','rank 0 joined');
INSERT INTO "events" VALUES(13,3,4,1796049070958,'rank_joined',1,'{"v":1,"attempt":1,"rank":1,"node":"node1","pid":5158}','running','rank 1 joined; every rank has joined');
INSERT INTO "events" VALUES(14,3,5,1796049071075,'attempt_resumed',1,'{"v":1,"attempt":1,"step":0}','running','attempt 1 began at step 0');
INSERT INTO "events" VALUES(15,3,6,1796049071076,'program_described',1,'{"v":1,"attempt":1,"total_steps":4,"config":""}','running','the program told of its run: 4 steps in all');
INSERT INTO "events" VALUES(16,3,7,1796049071080,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":2,"saved_at_ms":1796049071048,"path":"","bytes":-1}','running','checkpoint saved at step 2');
INSERT INTO "events" VALUES(17,3,8,1796049071080,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":4,"saved_at_ms":1796049071074,"path":"","bytes":-1}','running','checkpoint saved at step 4');
INSERT INTO "events" VALUES(18,3,9,1796049071211,'rank_exited',1,'{"v":1,"attempt":1,"rank":1,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"all 4 steps done","error":"","step":4,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":4}','running','rank 1 exited with 0: all 4 steps done');
INSERT INTO "events" VALUES(19,3,10,1796049071236,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"all 4 steps done","error":"","step":4,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":4}','succeeded','every rank exited with 0: all 4 steps done');
INSERT INTO "events" VALUES(20,4,1,1796049071385,'job_submitted',0,'{"v":1,"name":"swept-0000","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"s4","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(21,5,1,1796049071385,'job_submitted',0,'{"v":1,"name":"swept-0001","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"s4","index":1,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(22,6,1,1796049071385,'job_submitted',0,'{"v":1,"name":"swept-0002","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"s4","index":2,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(23,6,2,1796049071428,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/6/attempt-1","node":"node1","pids":[5292],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(24,5,2,1796049071428,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/5/attempt-1","node":"node1","pids":[5280],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(25,5,3,1796049071432,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"","error":"","step":0,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":0}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(26,6,3,1796049071432,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"","error":"","step":0,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":0}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(27,4,2,1796049071435,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/4/attempt-1","node":"node1","pids":[5321],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(28,4,3,1796049071445,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"","error":"","step":0,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":0}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(29,7,1,1796049071580,'job_submitted',0,'{"v":1,"name":"cancelled","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":true,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank; held by root until released');
INSERT INTO "events" VALUES(30,7,2,1796049071602,'cancel_requested',0,'{"v":1,"user":"root"}','cancelled','cancelled by root');
INSERT INTO "events" VALUES(31,8,1,1796049071628,'job_submitted',0,'{"v":1,"name":"removed","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(32,8,2,1796049071652,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"@DATA@/jobs/8/attempt-1","node":"node1","pids":[5376],"queued":false,"time_limit_ms":-1,"scheduler_job":null,"share":null}','running','attempt 1 started on node1 (submitted)');
INSERT INTO "events" VALUES(33,8,3,1796049071653,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"","error":"","step":0,"trace":"","status":"","bad_lines":0,"first_bad_line":"","source_trouble":"","attempt_step":0}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(34,8,4,1796049071801,'job_removed',0,'{"v":1,"user":"root"}','succeeded','removed by root');
INSERT INTO "events" VALUES(35,9,1,1796049071845,'job_submitted',0,'{"v":1,"name":"waiting","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank');
INSERT INTO "events" VALUES(36,10,1,1796049071863,'job_submitted',0,'{"v":1,"name":"held","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":true,"after":[],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank; held by root until released');
INSERT INTO "events" VALUES(37,11,1,1796049071886,'job_submitted',0,'{"v":1,"name":"after","user":"root","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[{"job":10,"on":"succeeded"}],"sweep":{"sweep":"","index":0,"parallel":0},"error_rules":1,"tells_steps":false}','pending','submitted by root: 1 rank; waiting for job 10 to succeed');
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
  next_attempt_at_ms   INTEGER,
  sweep                TEXT,                             -- submitted together with others; null: on its own
  sweep_index          INTEGER,
  total_steps          INTEGER NOT NULL DEFAULT 0,       -- 0: the program has not told how many it has
  program_status       TEXT    NOT NULL DEFAULT ''       -- what rank 0 did at its end
) STRICT;
INSERT INTO "jobs" VALUES(1,'50b95ac5c297a3e5778527efcee82411','{"name":"curve","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/sh","-c","for i in 3 2 1; do echo step $i loss: $i.5; done"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"env":{"COLOUR":"blue"},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","report":{"log":{"loss":"loss: ([0-9.]+)"}},"launcher":"muster"}','curve','root',1,'succeeded','every rank exited with 0',4,0,1796049069790,1796049069813,1796049070220,NULL,NULL,NULL,0,'');
INSERT INTO "jobs" VALUES(2,'07a02c73506a3f49b09a2aafc0658f17','{"name":"fails","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/sh","-c","echo ''ValueError: bad'' >&2; exit 3"]},"requeue":{"max_failed":1,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1,"backoff_max_ms":1,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','fails','root',1,'failed','rank 0 exited with 3: ValueError: bad; failed 2 times without anything new in its checkpoint folder (limit 1)',5,0,1796049070343,1796049070368,1796049070406,NULL,NULL,NULL,0,'');
INSERT INTO "jobs" VALUES(3,'a7eba48d35fb1aee446be2c8d45838d7','{"name":"training","resources":{"nodes":1,"ranks_per_node":2,"stop_grace_ms":30000},"recipe":{"kind":"causal_lm","model":{"family":"llama","attention_bias":false,"attention_dropout":0.0,"hidden_size":32,"initializer_range":0.02,"intermediate_size":64,"max_position_embeddings":2048,"mlp_bias":false,"num_attention_heads":4,"num_hidden_layers":2,"num_key_value_heads":2,"rms_norm_eps":1e-05,"rope_theta":10000.0,"rope_type":"default","tie_word_embeddings":false},"data":{"bucket_batches":0,"loader_ahead":2,"loader_threads":1,"max_bytes":16777216,"packing":"chunks","sequence_length":32,"source":"fixture","validation_fraction":0.05},"fsdp":{"activation_checkpointing":"none","activation_checkpointing_every":1,"check_memory":true,"fp32_norms":false,"offload":"none","prefetch":true,"prefetch_depth":1,"reduce_precision":"fp32","reshard_after_backward":true,"reshard_after_forward":true,"shared_memory":true,"strategy":"full_shard","tight":false,"wrap":"block"},"train":{"average_decay":0.0,"batch_size":8,"beta1":0.9,"beta2":0.95,"clip_norm":1.0,"clip_norm_type":"2","cuda_graph":false,"deterministic":false,"early_stop":0,"early_stop_least":0.0,"epochs":0.0,"epsilon":1e-08,"export_dtype":"trained","export_file_size":5000000000,"final_weight_decay":0.1,"generated_samples":64,"layer_decay":1.0,"learning_rate":0.0003,"legal_moves":"none","lora_rank":0,"max_skipped_steps":10,"micro_batch_size":2,"min_learning_rate":3e-05,"optimizer":"adamw","precision":"fp32","schedule":"cosine","seed":1,"step_delay_ms":0,"steps":4,"trace_step":0,"trace_steps":1,"validation_batches":8,"validation_every_epochs":0.0,"validation_every_steps":0,"warmup_steps":0,"weight_decay":0.1,"weight_decay_schedule":"constant"}},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"working_folder":"/tmp","checkpoint":{"every_steps":2,"keep":3,"asynchronous":false},"executor":"auto","environment":"clean","job_file":"standard input","launcher":"muster"}','training','root',0,'succeeded','every rank exited with 0: all 4 steps done',10,4,1796049070525,1796049070556,1796049071236,NULL,NULL,NULL,4,'');
INSERT INTO "jobs" VALUES(4,'a809ac2ceb4376880ebbb405c386c9a3','{"name":"swept-0000","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"env":{"SEED":"1"},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","sweep":{"settings":{"env.SEED":"1"}},"environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','swept-0000','root',1,'succeeded','every rank exited with 0',3,0,1796049071385,1796049071435,1796049071445,NULL,'s4',0,0,'');
INSERT INTO "jobs" VALUES(5,NULL,'{"name":"swept-0001","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"env":{"SEED":"2"},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","sweep":{"index":1,"settings":{"env.SEED":"2"}},"environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','swept-0001','root',1,'succeeded','every rank exited with 0',3,0,1796049071385,1796049071428,1796049071432,NULL,'s4',1,0,'');
INSERT INTO "jobs" VALUES(6,NULL,'{"name":"swept-0002","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"env":{"SEED":"3"},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","sweep":{"index":2,"settings":{"env.SEED":"3"}},"environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','swept-0002','root',1,'succeeded','every rank exited with 0',3,0,1796049071385,1796049071428,1796049071432,NULL,'s4',2,0,'');
INSERT INTO "jobs" VALUES(7,'5efb27b920bb0744e2f10b94e314246f','{"name":"cancelled","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","hold":true,"environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','cancelled','root',1,'cancelled','cancelled by root',2,0,1796049071580,NULL,1796049071602,NULL,NULL,NULL,0,'');
INSERT INTO "jobs" VALUES(8,'bf0738d7f4b3dc072de5eb6c0088cfa8','{}','removed','root',1,'succeeded','every rank exited with 0',4,0,1796049071628,1796049071652,1796049071653,NULL,NULL,NULL,0,'');
INSERT INTO "jobs" VALUES(9,'74e3829c0fb72c9f80d77649cee88bc6','{"name":"waiting","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','waiting','root',1,'pending','waiting for its first attempt',1,0,1796049071845,NULL,NULL,NULL,NULL,NULL,0,'');
INSERT INTO "jobs" VALUES(10,'6ab8e87950c9fa4c7a8e72e37f8ec3f6','{"name":"held","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","hold":true,"environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','held','root',1,'pending','held by root until released',1,0,1796049071863,NULL,NULL,NULL,NULL,NULL,0,'');
INSERT INTO "jobs" VALUES(11,'a6a3a872cc30377bb4363c39ce676c83','{"name":"after","resources":{"nodes":1,"ranks_per_node":1,"stop_grace_ms":30000},"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"join_within_ms":120000,"lost_after_ms":600000},"working_folder":"/tmp","checkpoint":{"every_steps":100,"keep":3,"asynchronous":false},"executor":"auto","after":["succeeded:10"],"environment":"submit","submitted_env":{"PATH":"/usr/bin:/bin"},"job_file":"standard input","launcher":"muster"}','after','root',1,'pending','waiting for job 10 to succeed',1,0,1796049071886,NULL,NULL,NULL,NULL,NULL,0,'');
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('drain','{"since_ms":1796049071822,"user":"root","reason":"release"}');
INSERT INTO "meta" VALUES('min_reader','13');
INSERT INTO "meta" VALUES('pair','fc83a3bea46fdffb45d8f15aa6fd81fa5db575fda5017214042e149c20adc45a');
INSERT INTO "meta" VALUES('secret','7a2dccfed97d40fa63f1bf9a498edd278155ff520295278186ae941cc9b8bf73');
CREATE TABLE partitions (
  name   TEXT PRIMARY KEY,
  policy TEXT NOT NULL CHECK (json_valid(policy))
) STRICT, WITHOUT ROWID;
CREATE TABLE removed_jobs (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id),
  at_ms  INTEGER NOT NULL
) STRICT;
INSERT INTO "removed_jobs" VALUES(8,1796049071801);
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_sweep ON jobs (sweep, id) WHERE sweep IS NOT NULL;
CREATE INDEX node_losses ON events (at_ms) WHERE type = 'node_lost';
CREATE INDEX actions_to_do ON actions (id) WHERE state <> 'done';
CREATE INDEX audit_by_partition ON audit (partition, id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',37);
INSERT INTO "sqlite_sequence" VALUES('actions',11);
INSERT INTO "sqlite_sequence" VALUES('audit',1);
COMMIT;
