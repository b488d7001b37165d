BEGIN TRANSACTION;
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
INSERT INTO "actions" VALUES(1,1,0,1,'start_attempt','{"attempt":1,"not_before_ms":1795533263424}',1795533263465);
INSERT INTO "actions" VALUES(2,11,0,2,'start_attempt','{"attempt":1,"not_before_ms":1795533264410}',1795533264501);
INSERT INTO "actions" VALUES(3,18,0,2,'stop_attempt','{"attempt":1,"save":false,"reason":"rank 1 killed by SIGKILL"}',1795533267277);
INSERT INTO "actions" VALUES(4,19,0,2,'start_attempt','{"attempt":2,"not_before_ms":1795533268364}',1795533268406);
INSERT INTO "actions" VALUES(5,27,0,3,'start_attempt','{"attempt":1,"not_before_ms":1795533270146}',1795533270170);
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
  handle            TEXT    NOT NULL, queued_at_ms INTEGER,
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "attempts" VALUES(1,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1795533263464,1795533263829,1795533264366,0,'/home/anna/data/jobs/1/attempt-1',NULL);
INSERT INTO "attempts" VALUES(2,1,'ended','failed','rank 1 killed by SIGKILL','submitted',1,0,9,1795533264476,1795533264824,1795533267364,0,'/home/anna/data/jobs/2/attempt-1',NULL);
INSERT INTO "attempts" VALUES(2,2,'ended','completed','every rank exited with 0','attempt 1: rank 1 killed by SIGKILL',NULL,NULL,NULL,1795533268396,1795533268797,1795533270009,8,'/home/anna/data/jobs/2/attempt-2',NULL);
INSERT INTO "attempts" VALUES(3,1,'ended','completed','every rank exited with 0','submitted',NULL,NULL,NULL,1795533270169,1795533270169,1795533270170,-1,'/home/anna/data/jobs/3/attempt-1',NULL);
CREATE TABLE audit (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms     INTEGER NOT NULL,
  user      TEXT    NOT NULL,
  action    TEXT    NOT NULL,
  partition TEXT    NOT NULL,
  before    TEXT    NOT NULL CHECK (before = '' OR json_valid(before)),
  after     TEXT    NOT NULL CHECK (after = '' OR json_valid(after))
) STRICT;
CREATE TABLE events (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id      INTEGER NOT NULL REFERENCES jobs (id),
  version     INTEGER NOT NULL CHECK (version > 0),
  at_ms       INTEGER NOT NULL,
  type        TEXT    NOT NULL,
  attempt     INTEGER NOT NULL,                          -- 0: about the job as a whole
  payload     TEXT    NOT NULL CHECK (json_valid(payload)),
  state_after TEXT    NOT NULL,
  text        TEXT    NOT NULL,
  UNIQUE (job_id, version)
) STRICT;
INSERT INTO "events" VALUES(1,1,1,1795533263424,'job_submitted',0,'{"v":1,"name":"fixture","user":"anna","is_command":false,"world_size":2,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0}}','pending','submitted by anna: 2 ranks');
INSERT INTO "events" VALUES(2,1,2,1795533263464,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"/home/anna/data/jobs/1/attempt-1","node":"node1","pids":[23565,23566],"queued":false,"time_limit_ms":-1}','running','attempt 1 started on vm (submitted)');
INSERT INTO "events" VALUES(3,1,3,1795533263786,'rank_joined',1,'{"v":1,"attempt":1,"rank":1,"node":"node1","pid":23566}','running','rank 1 joined');
INSERT INTO "events" VALUES(4,1,4,1795533263829,'rank_joined',1,'{"v":1,"attempt":1,"rank":0,"node":"node1","pid":23565}','running','rank 0 joined; every rank has joined');
INSERT INTO "events" VALUES(5,1,5,1795533264162,'attempt_resumed',1,'{"v":1,"attempt":1,"step":0}','running','attempt 1 began at step 0');
INSERT INTO "events" VALUES(6,1,6,1795533264166,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":4,"saved_at_ms":1795533264073}','running','checkpoint saved at step 4');
INSERT INTO "events" VALUES(7,1,7,1795533264166,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":8,"saved_at_ms":1795533264125}','running','checkpoint saved at step 8');
INSERT INTO "events" VALUES(8,1,8,1795533264166,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":12,"saved_at_ms":1795533264161}','running','checkpoint saved at step 12');
INSERT INTO "events" VALUES(9,1,9,1795533264366,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"all 12 steps done","error":"","step":12}','running','rank 0 exited with 0: all 12 steps done');
INSERT INTO "events" VALUES(10,1,10,1795533264366,'rank_exited',1,'{"v":1,"attempt":1,"rank":1,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"all 12 steps done","error":"","step":12}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(11,2,1,1795533264410,'job_submitted',0,'{"v":1,"name":"resumed","user":"anna","is_command":false,"world_size":2,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0}}','pending','submitted by anna: 2 ranks');
INSERT INTO "events" VALUES(12,2,2,1795533264476,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"/home/anna/data/jobs/2/attempt-1","node":"node1","pids":[23625,23626],"queued":false,"time_limit_ms":-1}','running','attempt 1 started on vm (submitted)');
INSERT INTO "events" VALUES(13,2,3,1795533264661,'rank_joined',1,'{"v":1,"attempt":1,"rank":0,"node":"node1","pid":23625}','running','rank 0 joined');
INSERT INTO "events" VALUES(14,2,4,1795533264824,'rank_joined',1,'{"v":1,"attempt":1,"rank":1,"node":"node1","pid":23626}','running','rank 1 joined; every rank has joined');
INSERT INTO "events" VALUES(15,2,5,1795533265195,'attempt_resumed',1,'{"v":1,"attempt":1,"step":0}','running','attempt 1 began at step 0');
INSERT INTO "events" VALUES(16,2,6,1795533266190,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":4,"saved_at_ms":1795533266009}','running','checkpoint saved at step 4');
INSERT INTO "events" VALUES(17,2,7,1795533267193,'checkpoint_saved',1,'{"v":1,"attempt":1,"step":8,"saved_at_ms":1795533266905}','running','checkpoint saved at step 8');
INSERT INTO "events" VALUES(18,2,8,1795533267276,'rank_exited',1,'{"v":1,"attempt":1,"rank":1,"exit":{"code":0,"signal":9},"out_of_memory":false,"last_words":"","error":"","step":7}','stopping','rank 1 killed by SIGKILL; stopping 1 rank');
INSERT INTO "events" VALUES(19,2,9,1795533267364,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":1,"signal":0},"out_of_memory":false,"last_words":"all-gather on rank 0 with rank 1 failed (did it die?): [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3271","error":"all-gather on rank 0 with rank 1 failed (did it die?): [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3271","step":9}','waiting','rank 1 killed by SIGKILL; attempt 2 starts in 1 s (failure 1 of 3)');
INSERT INTO "events" VALUES(20,2,10,1795533268396,'attempt_launched',2,'{"v":1,"attempt":2,"handle":"/home/anna/data/jobs/2/attempt-2","node":"node1","pids":[24158,24159],"queued":false,"time_limit_ms":-1}','running','attempt 2 started on vm (attempt 1: rank 1 killed by SIGKILL)');
INSERT INTO "events" VALUES(21,2,11,1795533268657,'rank_joined',2,'{"v":1,"attempt":2,"rank":1,"node":"node1","pid":24159}','running','rank 1 joined');
INSERT INTO "events" VALUES(22,2,12,1795533268797,'rank_joined',2,'{"v":1,"attempt":2,"rank":0,"node":"node1","pid":24158}','running','rank 0 joined; every rank has joined');
INSERT INTO "events" VALUES(23,2,13,1795533269298,'attempt_resumed',2,'{"v":1,"attempt":2,"step":8}','running','attempt 2 resumed from step 8');
INSERT INTO "events" VALUES(24,2,14,1795533269884,'checkpoint_saved',2,'{"v":1,"attempt":2,"step":12,"saved_at_ms":1795533269882}','running','checkpoint saved at step 12');
INSERT INTO "events" VALUES(25,2,15,1795533269998,'rank_exited',2,'{"v":1,"attempt":2,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"all 12 steps done","error":"","step":12}','running','rank 0 exited with 0: all 12 steps done');
INSERT INTO "events" VALUES(26,2,16,1795533270009,'rank_exited',2,'{"v":1,"attempt":2,"rank":1,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"all 12 steps done","error":"","step":12}','succeeded','every rank exited with 0');
INSERT INTO "events" VALUES(27,3,1,1795533270146,'job_submitted',0,'{"v":1,"name":"command","user":"anna","is_command":true,"world_size":1,"time_limit_ms":0,"policy":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"max_same_error":1,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000},"held":false,"after":[],"sweep":{"sweep":"","index":0,"parallel":0}}','pending','submitted by anna: 1 rank');
INSERT INTO "events" VALUES(28,3,2,1795533270169,'attempt_launched',1,'{"v":1,"attempt":1,"handle":"/home/anna/data/jobs/3/attempt-1","node":"node1","pids":[24203],"queued":false,"time_limit_ms":-1}','running','attempt 1 started on vm (submitted)');
INSERT INTO "events" VALUES(29,3,3,1795533270170,'rank_exited',1,'{"v":1,"attempt":1,"rank":0,"exit":{"code":0,"signal":0},"out_of_memory":false,"last_words":"","error":"","step":0}','succeeded','every rank exited with 0');
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
, sweep TEXT, sweep_index INTEGER) STRICT;
INSERT INTO "jobs" VALUES(1,'b36edb8e464caafeae629f49b564c455','{"name":"fixture","resources":{"nodes":1,"ranks_per_node":2,"cpus_per_rank":0,"gpus_per_rank":0,"time_limit_ms":0,"stop_grace_ms":30000},"recipe":{"kind":"causal_lm","model":{"family":"llama","hidden_size":32,"initializer_range":0.02,"intermediate_size":64,"max_position_embeddings":2048,"num_attention_heads":2,"num_hidden_layers":1,"num_key_value_heads":2,"rms_norm_eps":1e-05,"rope_theta":10000.0,"tie_word_embeddings":false},"data":{"max_bytes":204800,"sequence_length":32,"source":"man","validation_fraction":0.05},"fsdp":{"prefetch":true,"reshard_after_forward":true},"train":{"batch_size":8,"beta1":0.9,"beta2":0.95,"clip_norm":1.0,"epsilon":1e-08,"learning_rate":0.0003,"micro_batch_size":4,"min_learning_rate":3e-05,"precision":"fp32","schedule":"cosine","seed":1,"step_delay_ms":0,"steps":12,"validation_batches":2,"validation_every_steps":5,"warmup_steps":1,"weight_decay":0.1}},"command":null,"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"hung_after_ms":1800000,"join_within_ms":120000},"env":{},"working_folder":"/home/anna","checkpoint":{"folder":"","every_steps":4,"keep":3},"executor":"auto","slurm":null,"after":[],"hold":false,"sweep":null,"environment":"clean","submitted_env":{},"job_file":"/home/anna/job.toml"}','fixture','anna',0,'succeeded','every rank exited with 0',10,12,1795533263424,1795533263464,1795533264366,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'ce934230d3c490a8997aa786ccd352e7','{"name":"resumed","resources":{"nodes":1,"ranks_per_node":2,"cpus_per_rank":0,"gpus_per_rank":0,"time_limit_ms":0,"stop_grace_ms":30000},"recipe":{"kind":"causal_lm","model":{"family":"llama","hidden_size":32,"initializer_range":0.02,"intermediate_size":64,"max_position_embeddings":2048,"num_attention_heads":2,"num_hidden_layers":1,"num_key_value_heads":2,"rms_norm_eps":1e-05,"rope_theta":10000.0,"tie_word_embeddings":false},"data":{"max_bytes":204800,"sequence_length":32,"source":"man","validation_fraction":0.05},"fsdp":{"prefetch":true,"reshard_after_forward":true},"train":{"batch_size":8,"beta1":0.9,"beta2":0.95,"clip_norm":1.0,"epsilon":1e-08,"learning_rate":0.0003,"micro_batch_size":4,"min_learning_rate":3e-05,"precision":"fp32","schedule":"cosine","seed":1,"step_delay_ms":200,"steps":12,"validation_batches":2,"validation_every_steps":5,"warmup_steps":1,"weight_decay":0.1}},"command":null,"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"hung_after_ms":1800000,"join_within_ms":120000},"env":{},"working_folder":"/home/anna","checkpoint":{"folder":"","every_steps":4,"keep":3},"executor":"auto","slurm":null,"after":[],"hold":false,"sweep":null,"environment":"clean","submitted_env":{},"job_file":"/home/anna/j2.toml"}','resumed','anna',0,'succeeded','every rank exited with 0',16,12,1795533264410,1795533264476,1795533270009,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'1895ee1bb144b8f5639ceffbeebde578','{"name":"command","resources":{"nodes":1,"ranks_per_node":1,"cpus_per_rank":0,"gpus_per_rank":0,"time_limit_ms":0,"stop_grace_ms":30000},"recipe":null,"command":{"argv":["/bin/true"]},"requeue":{"max_failed":3,"max_rank_silent":5,"max_rank_hung":2,"max_preempted":1000,"max_timed_out":3,"max_node_failed":10,"max_out_of_memory":1,"max_controller_lost":5,"backoff_initial_ms":1000,"backoff_max_ms":300000,"healthy_after_ms":600000,"max_same_error":1},"liveness":{"heartbeat_interval_ms":500,"silent_after_ms":2500,"silent_after_vouched_ms":15000,"hung_after_ms":1800000,"join_within_ms":120000},"env":{},"working_folder":"/home/anna","checkpoint":{"folder":"","every_steps":100,"keep":3},"executor":"auto","slurm":null,"after":[],"hold":false,"sweep":null,"environment":"clean","submitted_env":{},"job_file":"standard input"}','command','anna',1,'succeeded','every rank exited with 0',3,0,1795533270146,1795533270169,1795533270170,NULL,NULL,NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('place','{"birth_ns":1795533201396403109,"device":65024,"fork":false,"fs_id":3246266521093931091,"host":"node1","inode":10043493,"path":"/home/anna/data"}');
INSERT INTO "meta" VALUES('secret','5555555555555555555555555555555555555555555555555555555555555555');
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
INSERT INTO "metrics" VALUES(1,1,1,0,5.57012987136840820312e+00,2.61913616592227590455e+04,9.774215,162574336,162574336,127896,0.0003,8.59071992764109171325e-01,0,NULL,1795533264041);
INSERT INTO "metrics" VALUES(1,1,1,1,5.57012987136840820312e+00,2.6652721185571343085e+04,9.605023,159248384,159248384,127896,0.0003,8.59071992764109171325e-01,0,NULL,1795533264041);
INSERT INTO "metrics" VALUES(1,1,2,0,5.56032466888427734375e+00,2.12656306538749486213e+04,12.038204,162762752,162762752,127896,0.0003,7.66036777608990471222e-01,0,NULL,1795533264054);
INSERT INTO "metrics" VALUES(1,1,2,1,5.56032466888427734375e+00,2.12806973019484030372e+04,12.029681,159313920,159313920,127896,0.0003,7.66036777608990471222e-01,0,NULL,1795533264054);
INSERT INTO "metrics" VALUES(1,1,3,0,5.55254530906677246093e+00,4.05678420300908765044e+04,6.310417,162828288,162828288,127896,2.94531551437957148792e-04,0.72636516779833,0,NULL,1795533264060);
INSERT INTO "metrics" VALUES(1,1,3,1,5.55254530906677246093e+00,4.05118418012577676543e+04,6.31914,159428608,159428608,127896,2.94531551437957148792e-04,0.72636516779833,0,NULL,1795533264060);
INSERT INTO "metrics" VALUES(1,1,4,0,5.55919122695922851562e+00,6.31550018638126566677e+04,4.053519,162828288,162828288,127896,2.78569226932209455978e-04,0.847516063051166,0,NULL,1795533264064);
INSERT INTO "metrics" VALUES(1,1,4,1,5.55919122695922851562e+00,6.33795459350686505792e+04,4.039158,159428608,159428608,127896,2.78569226932209455978e-04,0.847516063051166,0,NULL,1795533264064);
INSERT INTO "metrics" VALUES(1,1,5,0,5.54529428482055664062e+00,3.03345641740739483793e+04,8.439218,162869248,162869248,127896,2.53406199082613478503e-04,8.64629261104725599373e-01,1,5.53525006771087646484e+00,1795533264084);
INSERT INTO "metrics" VALUES(1,1,5,1,5.54529428482055664062e+00,3.06099999043437528598e+04,8.36328,159469568,159469568,127896,2.53406199082613478503e-04,8.64629261104725599373e-01,1,5.53525006771087646484e+00,1795533264084);
INSERT INTO "metrics" VALUES(1,1,6,0,5.53574371337890625e+00,8.1909672828449780358e+04,3.125394,162893824,162893824,127896,2.21081026755254648032e-04,8.77194567413756232099e-01,0,NULL,1795533264087);
INSERT INTO "metrics" VALUES(1,1,6,1,5.53574371337890625e+00,7.70439442406491725723e+04,3.322779,159469568,159469568,127896,2.21081026755254648032e-04,8.77194567413756232099e-01,0,NULL,1795533264087);
INSERT INTO "metrics" VALUES(1,1,7,0,5.53984785079956054687e+00,4.24229819876327092064e+04,6.034465,162893824,162893824,127896,1.84212503166893490228e-04,7.45643034673189264438e-01,0,NULL,1795533264093);
INSERT INTO "metrics" VALUES(1,1,7,1,5.53984785079956054687e+00,4.22035390964683901999e+04,6.065842,159469568,159469568,127896,1.84212503166893490228e-04,7.45643034673189264438e-01,0,NULL,1795533264093);
INSERT INTO "metrics" VALUES(1,1,8,0,5.51993823051452636718e+00,1.05561399231191389846e+04,24.251289,162893824,162893824,127896,1.45787496833106507967e-04,8.50539913145385129134e-01,0,NULL,1795533264117);
INSERT INTO "metrics" VALUES(1,1,8,1,5.51993823051452636718e+00,1.0523082278212783422e+04,24.327473,159469568,159469568,127896,1.45787496833106507967e-04,8.50539913145385129134e-01,0,NULL,1795533264118);
INSERT INTO "metrics" VALUES(1,1,9,0,5.51466178894043,6.13709601246981255838e+04,4.171354,162893824,162893824,127896,1.08918973244745323058e-04,0.939531113150827,0,NULL,1795533264129);
INSERT INTO "metrics" VALUES(1,1,9,1,5.51466178894043,57728.6873466159,4.434537,159473664,159473664,127896,1.08918973244745323058e-04,0.939531113150827,0,NULL,1795533264130);
INSERT INTO "metrics" VALUES(1,1,10,0,5.50409269332885742187e+00,8.16532746790643577678e+04,3.135208,162893824,162893824,127896,7.65938009173865196922e-05,8.80297892919248314846e-01,1,5.51641964912414550781e+00,1795533264146);
INSERT INTO "metrics" VALUES(1,1,10,1,5.50409269332885742187e+00,85702.2242740168,2.987087,159473664,159473664,127896,7.65938009173865196922e-05,8.80297892919248314846e-01,1,5.51641964912414550781e+00,1795533264146);
INSERT INTO "metrics" VALUES(1,1,11,0,5.53005743026733398437e+00,8.72392492108426085943e+04,2.934459,162893824,162893824,127896,5.14307730677905151125e-05,0.815250463428576,0,NULL,1795533264149);
INSERT INTO "metrics" VALUES(1,1,11,1,5.53005743026733398437e+00,8.35918367346938757673e+04,3.0625,159473664,159473664,127896,5.14307730677905151125e-05,0.815250463428576,0,NULL,1795533264149);
INSERT INTO "metrics" VALUES(1,1,12,0,5.51028108596801757812e+00,8.40823836567494290687e+04,3.044633,162893824,162893824,127896,3.54684485620428697322e-05,7.86168806815872200921e-01,1,5.51410377025604248046e+00,1795533264154);
INSERT INTO "metrics" VALUES(1,1,12,1,5.51028108596801757812e+00,88559.1291316639,2.890724,159473664,159473664,127896,3.54684485620428697322e-05,7.86168806815872200921e-01,1,5.51410377025604248046e+00,1795533264154);
INSERT INTO "metrics" VALUES(2,1,1,0,5.57012987136840820312e+00,1.20491141472452204647e+03,212.463752,159141888,159141888,127896,0.0003,8.59071992764109171325e-01,0,NULL,1795533265334);
INSERT INTO "metrics" VALUES(2,1,1,1,5.57012987136840820312e+00,1.20499763921663679861e+03,212.448549,158707712,158707712,127896,0.0003,8.59071992764109171325e-01,0,NULL,1795533265334);
INSERT INTO "metrics" VALUES(2,1,2,0,5.56032466888427734375e+00,1.18943744608154611339e+03,215.227796,159326208,159326208,127896,0.0003,7.66036777608990471222e-01,0,NULL,1795533265549);
INSERT INTO "metrics" VALUES(2,1,2,1,5.56032466888427734375e+00,1.18911228907650456672e+03,215.286649,158838784,158838784,127896,0.0003,7.66036777608990471222e-01,0,NULL,1795533265549);
INSERT INTO "metrics" VALUES(2,1,3,0,5.55254530906677246093e+00,1.14289625133824347355e+03,223.992335,159391744,159391744,127896,2.94531551437957148792e-04,0.72636516779833,0,NULL,1795533265774);
INSERT INTO "metrics" VALUES(2,1,3,1,5.55254530906677246093e+00,1.14323928589969523274e+03,223.925125,158998528,158998528,127896,2.94531551437957148792e-04,0.72636516779833,0,NULL,1795533265773);
INSERT INTO "metrics" VALUES(2,1,4,0,5.55919122695922851562e+00,1.14340983348089343966e+03,223.891725,159395840,159395840,127896,2.78569226932209455978e-04,0.847516063051166,0,NULL,1795533265997);
INSERT INTO "metrics" VALUES(2,1,4,1,5.55919122695922851562e+00,1.14005124770838028782e+03,224.551309,158998528,158998528,127896,2.78569226932209455978e-04,0.847516063051166,0,NULL,1795533265998);
INSERT INTO "metrics" VALUES(2,1,5,0,5.54529428482055664062e+00,1.16159853436756930024e+03,220.385953,159440896,159440896,127896,2.53406199082613478503e-04,8.64629261104725599373e-01,1,5.53525006771087646484e+00,1795533266245);
INSERT INTO "metrics" VALUES(2,1,5,1,5.54529428482055664062e+00,1.16192140988705796189e+03,220.324712,158998528,158998528,127896,2.53406199082613478503e-04,8.64629261104725599373e-01,1,5.53525006771087646484e+00,1795533266245);
INSERT INTO "metrics" VALUES(2,1,6,0,5.53574371337890625e+00,1.18094599909911357828e+03,216.775365,159469568,159469568,127896,2.21081026755254648032e-04,8.77194567413756232099e-01,0,NULL,1795533266462);
INSERT INTO "metrics" VALUES(2,1,6,1,5.53574371337890625e+00,1.18371283821976089714e+03,216.268669,158998528,158998528,127896,2.21081026755254648032e-04,8.77194567413756232099e-01,0,NULL,1795533266462);
INSERT INTO "metrics" VALUES(2,1,7,0,5.53984785079956054687e+00,1.14426456272767813969e+03,223.724485,159469568,159469568,127896,1.84212503166893490228e-04,7.45643034673189264438e-01,0,NULL,1795533266686);
INSERT INTO "metrics" VALUES(2,1,7,1,5.53984785079956054687e+00,1.14241555334514987402e+03,224.086585,158998528,158998528,127896,1.84212503166893490228e-04,7.45643034673189264438e-01,0,NULL,1795533266686);
INSERT INTO "metrics" VALUES(2,1,8,0,5.51993823051452636718e+00,1.2073003338411792811e+03,212.043344,159469568,159469568,127896,1.45787496833106507967e-04,8.50539913145385129134e-01,0,NULL,1795533266898);
INSERT INTO "metrics" VALUES(2,1,9,0,5.51466178894043,1.18402284202066562106e+03,216.212045,159469568,159469568,127896,1.08918973244745323058e-04,0.939531113150827,0,NULL,1795533267122);
INSERT INTO "metrics" VALUES(2,2,9,0,5.51466178894043,1.19413465499908170389e+03,214.381183,159752192,159752192,127896,1.08918973244745323058e-04,0.939531113150827,0,NULL,1795533269203);
INSERT INTO "metrics" VALUES(2,2,9,1,5.51466178894043,1.19222752969421981104e+03,214.724114,159518720,159518720,127896,1.08918973244745323058e-04,0.939531113150827,0,NULL,1795533269203);
INSERT INTO "metrics" VALUES(2,2,10,0,5.50409269332885742187e+00,1.19404429177634597181e+03,214.397407,159940608,159940608,127896,7.65938009173865196922e-05,8.80297892919248314846e-01,1,5.51641964912414550781e+00,1795533269422);
INSERT INTO "metrics" VALUES(2,2,10,1,5.50409269332885742187e+00,1.19609838127847751816e+03,214.029217,159715328,159715328,127896,7.65938009173865196922e-05,8.80297892919248314846e-01,1,5.51641964912414550781e+00,1795533269422);
INSERT INTO "metrics" VALUES(2,2,11,0,5.53005743026733398437e+00,1.12317804561781485971e+03,227.924683,159940608,159940608,127896,5.14307730677905151125e-05,0.815250463428576,0,NULL,1795533269650);
INSERT INTO "metrics" VALUES(2,2,11,1,5.53005743026733398437e+00,1.12429466155689374321e+03,227.698315,159719424,159719424,127896,5.14307730677905151125e-05,0.815250463428576,0,NULL,1795533269650);
INSERT INTO "metrics" VALUES(2,2,12,0,5.51028108596801757812e+00,1.20998654263365597219e+03,211.572601,159940608,159940608,127896,3.54684485620428697322e-05,7.86168806815872200921e-01,1,5.51410377025604248046e+00,1795533269869);
INSERT INTO "metrics" VALUES(2,2,12,1,5.51028108596801757812e+00,1.2071918340338331745e+03,212.062402,159784960,159784960,127896,3.54684485620428697322e-05,7.86168806815872200921e-01,1,5.51410377025604248046e+00,1795533269869);
CREATE TABLE partitions (
  name   TEXT PRIMARY KEY,
  policy TEXT NOT NULL CHECK (json_valid(policy))
) STRICT, WITHOUT ROWID;
CREATE TABLE removed_jobs (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id),
  at_ms  INTEGER NOT NULL
) STRICT;
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX actions_to_do ON actions (id) WHERE done_at_ms IS NULL;
CREATE INDEX jobs_by_sweep ON jobs (sweep, id) WHERE sweep IS NOT NULL;
CREATE INDEX node_losses ON events (at_ms) WHERE type = 'node_lost';
CREATE INDEX audit_by_partition ON audit (partition, id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',29);
INSERT INTO "sqlite_sequence" VALUES('actions',5);
COMMIT;
PRAGMA application_id = 1836282994;
PRAGMA user_version = 5;
