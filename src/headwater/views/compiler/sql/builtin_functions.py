"""Functions: what Spark's built-in functions are, and which of them a view may call.

What it is: the names that Spark 4.3 knows, by what they are (scalar, aggregate, window, generator, table function),
and the ones that are not functions of a view's inputs, each with what to do instead.
Invariants: a call of a name that Spark does not know is refused with the nearest name; a call whose value depends on
chance, on the time of day, on the session or on how rows are spread over files and partitions is refused.
``tests/spark/test_functions_are_sparks.py`` compares the names with the Spark that is installed.
Not here: what a function's arguments and result are (Spark's analyser says that when the view is declared).
Read next: ``views/compiler/algebra/accumulators.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

from sqlglot import exp

from headwater.hints import closest
from headwater.views.compiler.sql.dialect import CALLED_WITHOUT_BRACKETS, WrittenCast
from headwater.views.compiler.sql.refusal import Span, refuse


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCALARS = _names(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate and approx_top_k_estimate array array_append
    array_compact array_contains array_distinct array_except array_insert array_intersect array_join array_max
    array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64 between bigint bin binary
    bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count boolean bround btrim
    cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    concat concat_ws contains conv convert_timezone cos cosh cot crc32 csc curdate current_catalog
    current_database current_date current_path current_schema current_time current_timestamp current_timezone
    current_user date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e element_at
    elt encode endswith equal_null exists exp expm1 extract factorial filter find_in_set flatten float floor
    forall format_number format_string from_avro from_base32 from_csv from_json from_protobuf from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit greatest hash hex hll_sketch_estimate hll_union hmac
    hour hypot if ifnull ilike in initcap input_file_block_length input_file_block_start input_file_name instr int
    is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull jaro_winkler_similarity java_method
    json_array_length json_object_keys kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
    kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float last_day lcase least left len length levenshtein like ln localtime localtimestamp
    locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask
    md5 minute mod monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day
    not now nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url pi pmod position positive pow
    power printf quarter quote radians raise_error rand randn random randstr reduce reflect regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse
    right rint rlike round rpad rtrim schema_of_avro schema_of_csv schema_of_json schema_of_variant schema_of_xml
    sec second sentences sequence session_user session_window sha sha1 sha2 shiftleft shiftright
    shiftrightunsigned shuffle sign signum sin sinh size slice smallint sort_array soundex space
    spark_partition_id split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
    startswith str_to_map string struct substr substring substring_index tan tanh theta_difference
    theta_intersection theta_sketch_estimate theta_union time time_bucket time_diff time_from_micros
    time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp
    timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_avro to_base32 to_binary
    to_char to_csv to_date to_json to_number to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys
    transform_values translate trim trunc try_add try_aes_decrypt try_divide try_element_at try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
    try_parse_url try_reflect try_subtract try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_validate_utf8 try_variant_array_append try_variant_get try_variant_insert try_variant_set
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
    tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase
    unbase64 unhex uniform unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper
    url_decode url_encode user uuid validate_utf8 variant_array_append variant_delete variant_get variant_insert
    variant_set variant_strip_nulls vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
    vector_normalize version weekday weekofyear when width_bucket window window_time xpath xpath_boolean
    xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull
    zip_with
    """
)

AGGREGATES = _names(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kurtosis last last_value listagg max max_by mean measure median min min_by mode
    percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop
    stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
    """
)

# Aggregates that are known to be NULL over no rows. Of others (a list, a sketch, a bitmap) nothing is assumed.
NULL_OF_NOTHING = _names(
    """
    any_value approx_percentile avg bit_and bit_or bit_xor bool_and bool_or corr covar_pop covar_samp first first_value
    kurtosis last last_value max max_by median min min_by mode percentile percentile_approx percentile_cont
    percentile_disc regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness
    stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp
    """
)

WINDOWS = _names(
    """
    counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    """
)

GENERATORS = _names(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    """
)

TABLE_FUNCTIONS = _names(
    """
    collations python_worker_logs range sql_keywords variant_explode variant_explode_outer
    """
)

KNOWN = SCALARS | AGGREGATES | WINDOWS | GENERATORS | TABLE_FUNCTIONS

# The same function under several names: the first is the one this package uses.
SYNONYMS = {
    "mean": "avg",
    "any": "bool_or",
    "some": "bool_or",
    "logical_or": "bool_or",
    "every": "bool_and",
    "logical_and": "bool_and",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "variance_pop": "var_pop",
    "countif": "count_if",
}

TIME_OF_DAY = _names("curdate current_date current_time current_timestamp localtime localtimestamp now unix_timestamp")
RANDOM = _names("rand randn random randstr shuffle uniform uuid")
PLACE = _names(
    """
    input_file_block_length input_file_block_start input_file_name monotonically_increasing_id python_worker_logs
    spark_partition_id
    """
)
SESSION = _names(
    """
    current_catalog current_database current_path current_schema current_timezone current_user session_user user version
    """
)
FOREIGN_CODE = _names("java_method reflect try_reflect")
# With so many arguments these are given all that they would otherwise take from the clock or from chance.
ENOUGH_ARGUMENTS = {"unix_timestamp": 1}
# Its initialisation vector is random unless it is the fifth argument.
RANDOM_VECTOR = {"aes_encrypt": 5}

REASONS = (
    (TIME_OF_DAY, "depends on the time of day", "Give the time as a column: append it with each row, as event time."),
    (RANDOM, "gives another value each time", "Compute the value where the row is made and store it as a column."),
    (PLACE, "depends on how rows are spread over files", "Use a column that tells the rows apart, such as the key."),
    (SESSION, "depends on the session", "Write the value into the query, or store it as a column."),
    (FOREIGN_CODE, "runs code that may give another value each time", "Compute the value where the row is made."),
)
# Texts that Spark's casts to dates and timestamps read as the time of day.
SPECIAL_TIMES = _names("now today tomorrow yesterday")
TIMES = frozenset(
    {exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ}
)


def check_functions(tree: exp.Expr, sql: str) -> None:
    """Refuses calls that are not functions of a view's inputs, and names that Spark does not know.

    ``tree`` is what the parser made of ``sql``, before anything was rewritten.

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten
    >>> text = "SELECT lenght(name) AS n FROM users"
    >>> check_functions(sqlglot.parse_one(text, read=SparkAsWritten), text)
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidView: Spark has no function lenght (line 1, column 8)
      SELECT lenght(name) AS n FROM users
             ^^^^^^^^^^^^
      Hint: Did you mean length?
    """
    for node in tree.walk():
        if isinstance(node, exp.Func):
            name = written_name(node, sql)
            if name is not None:
                _check_call(node, name, sql)
        elif isinstance(node, exp.TableSample):
            refuse(
                sql,
                node,
                "TABLESAMPLE picks other rows each time",
                "Filter by a hash of the key instead: WHERE pmod(xxhash64(id), 100) < 10.",
            )
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.to.this in TIMES:
            _check_moment(node.this, node.this.name if node.this.is_string else "", sql)


def check_bare_calls(tree: exp.Expr, known: Collection[str], sql: str) -> None:
    """The same for a whole query that is not looked into; ``known`` are the columns of what it reads, in lower case."""
    named = {found.alias.lower() for found in tree.find_all(exp.Alias)} | set(known)
    for mention in tree.find_all(exp.Column):
        if not mention.table and mention.name.lower() not in named and not mention.this.args.get("quoted"):
            check_bare_call(mention, sql)


def check_bare_call(mention: exp.Column, sql: str) -> None:
    """Refuses ``current_date`` without brackets, where no column has that name."""
    name = mention.name.lower()
    for names, reason, hint in REASONS:
        if name in names and name in CALLED_WITHOUT_BRACKETS:
            refuse(sql, mention, f"{name} {reason}, so it cannot be part of a view", hint, function=name)


def check_called(name: str, count: int, sql: str, place: Span | None) -> None:
    """Refuses a function by its name and how many arguments it gets, where there is no tree; Spark knows the others."""
    if count >= ENOUGH_ARGUMENTS.get(name, sys.maxsize):
        return
    if count < RANDOM_VECTOR.get(name, 0):
        refuse(sql, place, f"{name} without an initialisation vector gives another value each time", REASONS[1][2])
    for names, reason, hint in REASONS:
        if name in names:
            refuse(sql, place, f"{name} {reason}, so it cannot be part of a view", hint, function=name)


def written_name(node: exp.Func, sql: str) -> str | None:
    """The name of a called function as the user wrote it, in lower case; None for operators and CASE.

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten
    >>> text = "SELECT Mean(a), a + 1, CASE WHEN a THEN b END FROM t"
    >>> [written_name(node, text) for node in sqlglot.parse_one(text, read=SparkAsWritten).find_all(exp.Func)]
    ['mean', None, None]
    """
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, WrittenCast):  # TIMESTAMP_NTZ '…' is no call
        return None
    start, end = node.meta.get("start"), node.meta.get("end")
    if start is not None and end is not None:
        return sql[start : end + 1].strip("`").lower()
    # Called without brackets, or by a syntax of its own (EXTRACT, TRIM, CASE, AND): known to the parser by heart.
    name = node.sql_name().lower()
    return name if name in KNOWN and not isinstance(node, exp.Binary | exp.Connector | exp.Case | exp.If) else None


def aggregate_name(node: exp.Expr) -> str | None:
    """The name of an aggregate function, one name for all its synonyms; None when it is none.

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten
    >>> [aggregate_name(sqlglot.parse_one(call, read=SparkAsWritten)) for call in ("mean(a)", "some(b)", "rank()")]
    ['avg', 'bool_or', None]
    """
    if isinstance(node, exp.Any):  # ANY (subquery) is a comparison, any(x) is bool_or(x)
        return None if isinstance(node.this, exp.Query) or isinstance(node.parent, exp.Binary) else "bool_or"
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        return SYNONYMS.get(name, name) if name in AGGREGATES else None
    if isinstance(node, exp.AggFunc):
        name = node.sql_name().lower()
        return None if name in WINDOWS else SYNONYMS.get(name, name)
    return None


def distinct_values(node: exp.Expr) -> list[exp.Expr] | None:
    """The values of a call over DISTINCT values; None for any other node."""
    given = node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else node.args.get("this")
    return list(given.expressions) if isinstance(node, exp.Func) and isinstance(given, exp.Distinct) else None


def is_generator(node: exp.Expr) -> bool:
    """Whether a function makes several rows of one: explode, inline, stack, …

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten
    >>> is_generator(sqlglot.parse_one("explode_outer(a)", read=SparkAsWritten))
    True
    """
    return isinstance(node, exp.Anonymous) and node.name.lower() in GENERATORS


def _check_call(node: exp.Func, name: str, sql: str) -> None:
    if name not in KNOWN and not _has_its_own_syntax(name):
        near = closest(name, KNOWN)
        hint = f"Did you mean {near}?" if near else "The functions are those of Spark SQL 4.3."
        refuse(sql, node, f"Spark has no function {name}", hint, function=name)
    if name in ENOUGH_ARGUMENTS and len(_call_arguments(node)) >= ENOUGH_ARGUMENTS[name]:
        return
    if name in RANDOM_VECTOR and len(_call_arguments(node)) < RANDOM_VECTOR[name] and not _has_no_vector(node):
        refuse(sql, node, f"{name} without an initialisation vector gives another value each time", REASONS[1][2])
    for names, reason, hint in REASONS:
        if name in names:
            refuse(sql, node, f"{name}() {reason}, so it cannot be part of a view", hint, function=name)


def _has_no_vector(node: exp.Func) -> bool:
    """Whether the mode of aes_encrypt is ECB, which uses no initialisation vector."""
    mode = _call_arguments(node)[2:3]
    return bool(mode) and isinstance(mode[0], exp.Literal) and mode[0].is_string and mode[0].name.upper() == "ECB"


def _call_arguments(node: exp.Func) -> list[exp.Expr]:
    return list(node.iter_expressions())


def _has_its_own_syntax(name: str) -> bool:
    """Whether Spark's grammar, and not its list of functions, knows the name."""
    return name in {"try_cast", "timestampadd", "timestampdiff", "date_add", "dateadd", "values", "percentile_cont"}


def _check_moment(node: exp.Expr, written: str, sql: str) -> None:
    # "today UTC" is special too: a zone may follow.
    if written.strip().lower().split(" ")[0] in SPECIAL_TIMES:
        refuse(sql, node, f"'{written}' as a time depends on the time of day", REASONS[0][2])
