PRAGMA user_version = 2;
PRAGMA application_id = 1836282994;
BEGIN TRANSACTION;
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('min_reader','2');
INSERT INTO "meta" VALUES('pair','fc83a3bea46fdffb45d8f15aa6fd81fa5db575fda5017214042e149c20adc45a');
CREATE TABLE metric_attempts (
  job_id         INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,
  rank_rows_from INTEGER,                                 -- rows of single ranks of earlier steps have aged out
  step_rows_from INTEGER,                                 -- step rows of earlier steps, too
  left_out       INTEGER NOT NULL DEFAULT 0,              -- rows that came when the rows of their steps had aged out
  PRIMARY KEY (job_id, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO "metric_attempts" VALUES(1,1,NULL,NULL,0);
INSERT INTO "metric_attempts" VALUES(3,1,NULL,NULL,0);
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
CREATE TABLE metric_hours (
  job_id     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  hour       INTEGER NOT NULL,                            -- since 1970
  after_step INTEGER NOT NULL,
  is_summed  INTEGER NOT NULL DEFAULT 0,                  -- 1: the rows of single ranks have aged out
  PRIMARY KEY (job_id, attempt, hour)
) STRICT, WITHOUT ROWID;
INSERT INTO "metric_hours" VALUES(1,1,498902,-1,0);
INSERT INTO "metric_hours" VALUES(3,1,498902,-1,0);
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
INSERT INTO "rank_steps" VALUES(1,1,1,0,NULL,NULL,NULL,NULL,1796049069942);
INSERT INTO "rank_steps" VALUES(1,1,2,0,NULL,NULL,NULL,NULL,1796049070077);
INSERT INTO "rank_steps" VALUES(1,1,3,0,NULL,NULL,NULL,NULL,1796049070212);
INSERT INTO "rank_steps" VALUES(3,1,1,0,19.947348,161153024,161153024,284757,1796049071036);
INSERT INTO "rank_steps" VALUES(3,1,1,1,19.957489,160673792,160673792,284757,1796049071036);
INSERT INTO "rank_steps" VALUES(3,1,2,0,7.948518,161157120,161157120,284757,1796049071044);
INSERT INTO "rank_steps" VALUES(3,1,2,1,7.950401,160677888,160677888,284757,1796049071044);
INSERT INTO "rank_steps" VALUES(3,1,3,0,8.145135,161607680,161607680,284757,1796049071056);
INSERT INTO "rank_steps" VALUES(3,1,3,1,8.506235,161026048,161026048,284757,1796049071056);
INSERT INTO "rank_steps" VALUES(3,1,4,0,13.050833,161615872,161615872,284757,1796049071070);
INSERT INTO "rank_steps" VALUES(3,1,4,1,13.580139,161083392,161083392,284757,1796049071070);
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
INSERT INTO "series" VALUES(1,1,'loss','','lower','mean',1,3);
INSERT INTO "series" VALUES(3,1,'gpu_memory_peak','bytes','lower','max',NULL,NULL);
INSERT INTO "series" VALUES(3,2,'gpu_memory_reserved','bytes','lower','max',NULL,NULL);
INSERT INTO "series" VALUES(3,3,'wait_ms','ms','lower','mean',1,4);
INSERT INTO "series" VALUES(3,4,'data_wait_ms','ms','lower','mean',1,4);
INSERT INTO "series" VALUES(3,5,'tensor_peak_bytes','bytes','lower','max',1,4);
INSERT INTO "series" VALUES(3,6,'loss','nats','lower','rank0',1,4);
INSERT INTO "series" VALUES(3,7,'validation/loss','nats','lower','rank0',NULL,NULL);
INSERT INTO "series" VALUES(3,8,'tokens_per_s','tokens/s','higher','rank0',1,4);
INSERT INTO "series" VALUES(3,9,'samples_per_s','samples/s','higher','rank0',NULL,NULL);
INSERT INTO "series" VALUES(3,10,'learning_rate','','neither','rank0',1,4);
INSERT INTO "series" VALUES(3,11,'grad_norm','','neither','rank0',1,4);
INSERT INTO "series" VALUES(3,12,'loss_scale','','neither','rank0',NULL,NULL);
INSERT INTO "series" VALUES(3,13,'skipped_steps','steps','lower','rank0',NULL,NULL);
INSERT INTO "series" VALUES(3,14,'gathered_bytes','bytes','neither','rank0',1,4);
INSERT INTO "series" VALUES(3,15,'scattered_bytes','bytes','neither','rank0',1,4);
INSERT INTO "series" VALUES(3,16,'validation/perplexity','','lower','rank0',NULL,NULL);
INSERT INTO "series" VALUES(3,17,'validation/legal_moves','','higher','rank0',NULL,NULL);
CREATE TABLE series_values (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step    INTEGER NOT NULL,
  series  INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  value   REAL,
  PRIMARY KEY (job_id, attempt, step, series, rank)
) STRICT, WITHOUT ROWID;
INSERT INTO "series_values" VALUES(1,1,1,1,0,3.5);
INSERT INTO "series_values" VALUES(1,1,2,1,0,2.5);
INSERT INTO "series_values" VALUES(1,1,3,1,0,1.5);
INSERT INTO "series_values" VALUES(3,1,1,3,0,4.667579);
INSERT INTO "series_values" VALUES(3,1,1,3,1,3.393511);
INSERT INTO "series_values" VALUES(3,1,1,4,0,0.076417);
INSERT INTO "series_values" VALUES(3,1,1,4,1,0.070935);
INSERT INTO "series_values" VALUES(3,1,1,5,0,973536.0);
INSERT INTO "series_values" VALUES(3,1,1,5,1,973536.0);
INSERT INTO "series_values" VALUES(3,1,1,6,0,5.54002737998962402343e+00);
INSERT INTO "series_values" VALUES(3,1,1,8,0,1.28337862256175612852e+04);
INSERT INTO "series_values" VALUES(3,1,1,10,0,0.0003);
INSERT INTO "series_values" VALUES(3,1,1,11,0,1.2638129623887);
INSERT INTO "series_values" VALUES(3,1,1,14,0,214528.0);
INSERT INTO "series_values" VALUES(3,1,1,15,0,70144.0);
INSERT INTO "series_values" VALUES(3,1,2,3,0,0.72424);
INSERT INTO "series_values" VALUES(3,1,2,3,1,0.264752);
INSERT INTO "series_values" VALUES(3,1,2,4,0,0.014293);
INSERT INTO "series_values" VALUES(3,1,2,4,1,1.05689999999999950652e-02);
INSERT INTO "series_values" VALUES(3,1,2,5,0,1043806.0);
INSERT INTO "series_values" VALUES(3,1,2,5,1,1043806.0);
INSERT INTO "series_values" VALUES(3,1,2,6,0,5.5442625284194946289e+00);
INSERT INTO "series_values" VALUES(3,1,2,8,0,3.22072617813786164341e+04);
INSERT INTO "series_values" VALUES(3,1,2,10,0,2.60459415460183882438e-04);
INSERT INTO "series_values" VALUES(3,1,2,11,0,1.19161595577587187122e+00);
INSERT INTO "series_values" VALUES(3,1,2,14,0,214528.0);
INSERT INTO "series_values" VALUES(3,1,2,15,0,70144.0);
INSERT INTO "series_values" VALUES(3,1,3,3,0,0.546706);
INSERT INTO "series_values" VALUES(3,1,3,3,1,0.982393);
INSERT INTO "series_values" VALUES(3,1,3,4,0,1.74409999999999981712e-02);
INSERT INTO "series_values" VALUES(3,1,3,4,1,1.34710000000000107434e-02);
INSERT INTO "series_values" VALUES(3,1,3,5,0,1043806.0);
INSERT INTO "series_values" VALUES(3,1,3,5,1,1043806.0);
INSERT INTO "series_values" VALUES(3,1,3,6,0,5.50240886211395263671e+00);
INSERT INTO "series_values" VALUES(3,1,3,8,0,3.14298044169924760361e+04);
INSERT INTO "series_values" VALUES(3,1,3,10,0,1.64999999999999944887e-04);
INSERT INTO "series_values" VALUES(3,1,3,11,0,1.33498550186892273039e+00);
INSERT INTO "series_values" VALUES(3,1,3,14,0,214528.0);
INSERT INTO "series_values" VALUES(3,1,3,15,0,70144.0);
INSERT INTO "series_values" VALUES(3,1,4,3,0,3.826038);
INSERT INTO "series_values" VALUES(3,1,4,3,1,5.39445);
INSERT INTO "series_values" VALUES(3,1,4,4,0,1.71409999999999895781e-02);
INSERT INTO "series_values" VALUES(3,1,4,4,1,3.8781999999999983153e-02);
INSERT INTO "series_values" VALUES(3,1,4,5,0,1043806.0);
INSERT INTO "series_values" VALUES(3,1,4,5,1,1043806.0);
INSERT INTO "series_values" VALUES(3,1,4,6,0,5.51661026477813720703e+00);
INSERT INTO "series_values" VALUES(3,1,4,8,0,1.9615606145600053424e+04);
INSERT INTO "series_values" VALUES(3,1,4,10,0,6.95405845398160751e-05);
INSERT INTO "series_values" VALUES(3,1,4,11,0,1.24813957149434129334e+00);
INSERT INTO "series_values" VALUES(3,1,4,14,0,214528.0);
INSERT INTO "series_values" VALUES(3,1,4,15,0,70144.0);
CREATE TABLE step_rows (
  job_id             INTEGER NOT NULL,
  attempt            INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  ranks              INTEGER NOT NULL,                    -- how many have told it
  is_told            INTEGER NOT NULL,                    -- 1: by rank 0; until then nobody sees the step
  at_ms              INTEGER NOT NULL,                    -- rank 0's, once it has told
  step_ms            REAL,                                -- the most of a rank, as the next two
  memory_bytes       INTEGER,
  memory_peak_bytes  INTEGER,
  bytes_communicated INTEGER,                             -- of all ranks
  series             BLOB,                                -- see store::encode_values(); null: no value
  PRIMARY KEY (job_id, attempt, step)
) STRICT, WITHOUT ROWID;
INSERT INTO "step_rows" VALUES(1,1,1,1,1,1796049069942,NULL,NULL,NULL,NULL,X'01030000000000000C40');
INSERT INTO "step_rows" VALUES(1,1,2,1,1,1796049070077,NULL,NULL,NULL,NULL,X'01030000000000000440');
INSERT INTO "step_rows" VALUES(1,1,3,1,1,1796049070212,NULL,NULL,NULL,NULL,X'0103000000000000F83F');
INSERT INTO "step_rows" VALUES(3,1,1,2,1,1796049071036,19.957489,161153024,161153024,569514,X'0305AC394030471F20404CFC51D499AB12404CFC51D499AB124004054A06802A6EDCC23F33C2DB831090B33F33C2DB831090B33F050500000000C0B53D4100000000C0B52D4100000000C0B52D410603000000F0FC28164008035A810AA3E410C9400A03613255302AA9333F0B038886DBF09338F43F0E030000000000300A410F03000000000020F140');
INSERT INTO "step_rows" VALUES(3,1,2,2,1,1796049071044,7.950401,161157120,161157120,569514,X'0305232E008DD2A5EF3FB08F4E5DF92CE73FB08F4E5DF92CE73F04055011A7936C75993F406B7EFCA5458D3F406B7EFCA5458D3F050500000000BCDA3F4100000000BCDA2F4100000000BCDA2F41060300000028532D16400803F7AE06C1D073DF400A03F1B9DCABC811313F0B03BA2F77E4DB10F33F0E030000000000300A410F03000000000020F140');
INSERT INTO "step_rows" VALUES(3,1,3,2,1,1796049071056,8.506235,161607680,161607680,569514,X'0305768A55833077F83FEF37DA71C36FEF3FFDDCD0949D7EE13F0405343F373465A79F3F342A70B20DDC913F342A70B20DDC913F050500000000BCDA3F4100000000BCDA2F4100000000BCDA2F41060300000078770216400803C268917B73B1DE400A0336842A357BA0253F0B032794F2C1195CF53F0E030000000000300A410F03000000000020F140');
INSERT INTO "step_rows" VALUES(3,1,4,2,1,1796049071070,13.580139,161615872,161615872,569514,X'030526529ACDE3702240F9A067B3EA931540A7069ACFB99B0E400405043C3080F0A1AC3F50D158FB3BDBA33F68D5AE09698D913F050500000000BCDA3F4100000000BCDA2F4100000000BCDA2F4106030000004802111640080336EA16CBE627D3400A0319293725CA3A123F0B031E96063361F8F33F0E030000000000300A410F03000000000020F140');
CREATE INDEX metric_hours_to_age ON metric_hours (is_summed, hour);
COMMIT;
