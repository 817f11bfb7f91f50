-- What finds and lists an outcome. `file` is 0 for what no file has yet, which alone has its `text`, in lower case.
CREATE TABLE small.answers (file INTEGER, place BIGINT, moment BIGINT, stream BIGINT, sequence BIGINT,
    run VARCHAR, tenant VARCHAR, model VARCHAR, version VARCHAR, protocol VARCHAR, outcome VARCHAR,
    reason VARCHAR, id VARCHAR USING COMPRESSION 'uncompressed', partition INTEGER, tags VARCHAR, bits BIGINT,
    pairs VARCHAR, score DOUBLE, refuted INTEGER, supported INTEGER, undecided INTEGER, badness DOUBLE,
    doubt DOUBLE, sentence VARCHAR, facts STRUCT("text" VARCHAR, category VARCHAR, unit INTEGER)[],
    image VARCHAR, "text" VARCHAR);

-- The outcomes of `rows`, as the archive has them, with their places in the file.
INSERT INTO small.answers
SELECT $file, place, coalesce(epoch_us(recorded_at), epoch_us(scored_at), 0), stream, sequence,
    run, tenant, model, version, protocol, outcome, reason,
    response_id, coalesce(TRY_CAST(split_part(key, '-p', 2) AS INTEGER), 0),
    $record || array_to_string(list_transform(map_entries(tags), lambda e: e.key || $field || e.value
        || $record), ''),
    bits, CASE WHEN bits < 0 THEN $record || array_to_string(pairs, $record) || $record ELSE '' END,
    score, refuted, supported, len(list_filter(claims, lambda c: c.verdict = 'undecided')),
    coalesce(-score, $no_score),
    coalesce(-list_min(list_transform(claims, lambda c: abs(c.probability - 0.5))), $no_doubt),
    left(coalesce(CASE WHEN len(wrong) > 0 THEN units[wrong[1].unit + 1]."text"
        ELSE list_filter(units, lambda u: u.label = 'descriptive')[1]."text" END, ''), $sentence_length),
    list_transform(wrong[1:$facts], lambda c: struct_pack("text" := left(c."text", $fact_length),
        category := c.category, unit := c.unit)),
    coalesce(images[1], ''),
    CASE WHEN $file = 0 THEN lower(array_to_string(list_concat(list_transform(units, lambda u: u."text"),
        list_transform(claims, lambda c: c."text")), chr(10))) END
FROM (
    SELECT *, coalesce(list_bit_or(list_transform(pairs,
        lambda p: coalesce(map_extract(map($pairs, $bits), p)[1], $others))), 0) AS bits
    FROM (
        SELECT *, list_filter(claims, lambda c: c.verdict = 'refuted') AS wrong,
            list_distinct(list_transform(claims, lambda c: c.category || $field || c.verdict)) AS pairs
        FROM rows
    ))
