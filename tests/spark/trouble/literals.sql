-- once wrong
'O''Brien'
-128Y
ts - INTERVAL 1 DAY 1 HOUR
date_format(dt, "yyyy 'year'")
~ ~i
i >>> 1
regexp_like(s, 'a') = false
log10(1000)
to_json(struct(i AS MixedCase, s AS `a b`))
CAST(x AS STRING)
-1::string
array(1, 2, 3, 4)[coalesce(k, 0)]
year(TIMESTAMP_NTZ'2016-12-31 00:12:00')
when(o, i, k > 1, 7)
in(k, 1, 2)
aes_encrypt(s, 'abcdefghijklmnop', 'ecb', 'PKCS')
between(i, 0, k)
CASE WHEN (o) THEN when(k > 1, i) WHEN (k IS NULL) THEN 1 ELSE when(i IS NULL, 2) END
TIMESTAMP_NTZ '2020-02-29 12:00:00.5'
TIMESTAMP_LTZ'2020-02-29 12:00:00' > ts
to_date('1 2 987', 'd M y')
from_unixtime(86400, "y 'day' d")
to_json(CAST(struct(k) AS STRUCT<userId: INT>))

-- texts
'it''s' || '''quoted'''
"double ""quotes"""
"it's"
'say "hi"'
'a\'b'
'a\\b'
'tab\tnl\n'
'\u00e9\U0001F600'
'\101'
'100\%'
'a\_b'
r'a\nb'
r"a\d+"
R'\\'
'a' 'b'
'a' "b" 'c'
'x' '' 'y'
''
' '
'-- no comment'
'/* nor this */'
'grüße 日本 😀'
'a;b'
'${x}'
'{{x}}'
'\0'
'\q'
'%s'
'`tick`'
length('a''b')
concat('''', s, '''')
s || 'O''k' || w
coalesce(s, 'it''s') = 'O''Brien'

-- numbers
1
-1
- 1
+1
1L
1S
1Y
1BD
1.5BD
1.50BD
1.5F
1F
1D
1.5d
1e3
1E3
1e-3
1e3BD
1.e2
.5
5.
0.10
00012
2147483648
9223372036854775808
-2147483648
-9223372036854775808L
1.0
1.00
123456789012345678901234567890
0.1 + 0.2
0.1D + 0.2D
X'1F'
x'00ff'
X ''
X'1F' || X'2A'
i + 1L
c * 1.10
c + 0.005
1 / 3
1.0 / 3
i / 2
7 div 2
e * 2
1.5F * 2
cast(0.1F AS DOUBLE)
i + .5
-c
- - k
k + 1Y
-(-1)
2 - -1
2-(-1)
1.2e1F
NULL
TRUE
false
NULL + 1
15

-- times
DATE'2016-02-29'
DATE '2016-2-9'
date'2016'
DATE'2016-02'
TIMESTAMP'2016-12-31 00:12:00.123'
TIMESTAMP'2016-12-31T00:12:00+05:30'
TIMESTAMP'2016-12-31 00:12:00 Europe/Berlin'
TIMESTAMP_NTZ'2016-12-31 00:12:00'
TIMESTAMP_LTZ'2016-12-31 00:12:00'
timestamp '2016-12-31'
nt - INTERVAL 1 DAY 2 HOURS 3 MINUTES
nt + INTERVAL '1 2' DAY TO HOUR
nt - INTERVAL '1 2:03:04.5' DAY TO SECOND
dt + INTERVAL '1-2' YEAR TO MONTH
dt - INTERVAL 1 YEAR 2 MONTHS
nt + -INTERVAL '1' DAY
nt - INTERVAL '-1' DAY
nt + INTERVAL -1 DAY
nt - INTERVAL - '1' HOUR
nt + INTERVAL '1' DAY * 2
nt + 2 * INTERVAL '1' HOUR
nt + INTERVAL '3' DAY / 2
nt + INTERVAL '90' MINUTE
nt + INTERVAL '1:30' HOUR TO MINUTE
nt + INTERVAL '1 day 2 hours'
nt + INTERVAL 1 week
nt + INTERVAL 1.5 SECONDS
nt + INTERVAL '1.5' SECOND
nt + INTERVAL 500 MILLISECONDS
nt + INTERVAL 7 MICROSECONDS
dt + 1
dt - 1
1 + dt
dt - DATE'2016-01-01'
CAST(nt - TIMESTAMP_NTZ'2016-01-01 00:00:00' AS STRING)
CAST(INTERVAL 1 DAY 2 HOURS AS STRING)
CAST(INTERVAL '1-2' YEAR TO MONTH AS STRING)
CAST(-INTERVAL 1 DAY 1 HOUR AS STRING)
CAST(INTERVAL '1' DAY AS STRING)
CAST(INTERVAL 25 HOURS AS STRING)
CAST(INTERVAL '10' YEAR AS STRING)
INTERVAL '1' DAY > INTERVAL '23' HOUR
CAST(interval '1' month + interval '2' month AS STRING)
CAST(INTERVAL '3' DAY AS INT)
nt BETWEEN TIMESTAMP_NTZ'2016-12-31 00:00:00' AND TIMESTAMP_NTZ'2016-12-31 00:00:00' + INTERVAL 1 DAY 1 HOUR
extract(YEAR FROM dt)
EXTRACT(doy FROM nt)
extract(second FROM ts)
extract(DAYOFWEEK_ISO FROM dt)
extract(HOUR FROM INTERVAL 3 HOURS)
timestampadd(MONTH, 1, nt)
dateadd(DAY, 3, dt)
datediff(HOUR, TIMESTAMP'2016-12-30 00:00:00', TIMESTAMP'2016-12-31 00:12:00')
timestampdiff(MONTH, nt, nt)
date_add(dt, 1)
date_add(dt, -1)
dateadd(dt, 2)
datediff(dt, DATE'2016-01-01')
date_diff(dt, dt)
date_format(nt, 'D')
to_date('31 1 2016', 'd M y')
to_date('2016-12-31')
to_timestamp('2016', 'yyyy')
from_unixtime(0)
from_unixtime(86400, 'yyyy-MM-dd')
unix_timestamp('2016-12-31', 'yyyy-MM-dd')
unix_timestamp(ts)
date(ts)
timestamp(dt)
string(dt)
CAST(dt AS TIMESTAMP)
CAST(ts AS DATE)
ts::date
dt::timestamp_ntz
CAST('2016-12-31' AS DATE)
date_trunc('month', nt)
trunc(dt, 'MM')
make_date(2016, 1, 1)
year(dt) + month(dt)
last_day(dt)

-- operators
i % 3
mod(i, 3)
-7 % 3
i div 3
i DIV 2
n % 7 - 2 - 1
2 - (1 - 3)
2 * (3 + 4) % 5
12 / (2 * 3)
(i % 10) - ((k) - 1)
7 - 2 * 3
100 / 10 / 2
100 / (10 / 2)
s || w
s || NULL
i & 3
i | 8
i ^ 5
~i
i & 3 | 8
(i | 8) & 12
i ^ 5 & 3
1 << 4
i >> 1
n >>> 3
1 + 2 << 3
(-8) >>> 28
i <=> NULL
i <=> k
NOT (i <=> k)
i == 1
i != 1
i <> 1
!(i = 1)
! o
NOT o
NOT o = o
NOT i = 1 AND o
o OR o AND NOT o
(o OR true) AND o
i = 1 = o
i < 3 = true
(i = 1) IS NULL
(i IS NULL) = o
s RLIKE '^a'
s REGEXP '[a-z]+'
s RLIKE r'\d+'
s NOT RLIKE 'a'
s LIKE 'a%'
s NOT LIKE '%a%'
s LIKE '\%\_'
s LIKE '!%!_' ESCAPE '!'
s LIKE '%''%'
s LIKE ANY ('a%', 'O%')
s LIKE ALL ('%a%', '%b%')
s NOT LIKE ANY ('a%', 'b%')
s NOT LIKE ALL ('a%', 'b%')
s LIKE SOME ('a%', '%b')
s ILIKE 'A%'
s NOT ILIKE 'a%'
s ILIKE ANY ('A%', 'o%')
s ILIKE '%É' ESCAPE '/'
like(s, 'a%')
like(s, '/%', '/')
ilike(s, 'A%')
rlike(s, 'a')
regexp(s, 'a')
like(s, 'a%') = o
NOT like(s, 'a%')
startswith(s, 'a') = endswith(s, 'c')
contains(s, '''')
i IS DISTINCT FROM k
i IS NOT DISTINCT FROM k
NULL IS DISTINCT FROM NULL
i BETWEEN 1 AND 3
i NOT BETWEEN 1 AND 3
i BETWEEN 1 AND 3 AND o
NOT i BETWEEN 1 AND 3
i BETWEEN k - 1 AND k + 1
o IS TRUE
o IS NOT TRUE
o IS FALSE
o IS UNKNOWN
o IS NOT UNKNOWN
NOT o IS TRUE
i IS NOT NULL
i IN (1, 2, NULL)
i NOT IN (1, 2)
(i, k) IN ((1, 1), (2, 2))
(i, k) = (k, i)
s IN ('O''Brien', '')
w IN ('1', '01')
struct(i, k) < struct(k, i)
named_struct('a', i) = named_struct('b', i)
i::string
'7'::int + 1
i::double / 3
(-1)::string
i::decimal(20, 3)
c::int
s::binary
'[1]'::string
dt::string::date
CAST(i AS STRING)
CAST(c AS DECIMAL(20,1))
TRY_CAST(s AS INT)
try_cast(w AS DOUBLE)
try_cast(w AS DATE)
TRY_CAST(w AS BOOLEAN)
CAST(o AS INT)
CAST(m AS STRING)
CAST(st AS STRING)
CAST(ai AS ARRAY<STRING>)
CAST(st AS STRUCT<x: BIGINT, y: STRING>)
CAST(d AS STRING)
CAST(f AS STRING)
CAST(f AS DOUBLE)
int('7')
bigint(i)
double(c)
decimal(i)
boolean('true')
float(c)
binary(s)
tinyint(b)
string(ts)
CAST('a' AS CHAR(3))
CAST('abc' AS VARCHAR(3))
get(ai, 0)
try_element_at(ai, 1)
element_at(m, 'a')
m['a']
m['O''k']
st.A
st.a
st.b
`st`.`A`
ast.v
ast.key
array(1, 2)[1]
map('a', 1)['a']
named_struct('Ab', i).Ab
named_struct('Ab', i).aB
struct(i AS X, k).x
struct(i, k, s || w)
array(i, NULL)
map('K', i, 'v', k)
to_json(named_struct('O''k', i))
to_json(st)
to_json(ast)
struct(id, k)
cardinality(array())
size(map())
named_struct('a', named_struct('B', i)).A.b
transform(ai, v -> v % 7 + k)
transform(ai, (v, at) -> at)
filter(ai, v -> v IS NOT NULL AND v > k)
exists(ai, v -> v = 1)
forall(ai, i -> i > 0)
aggregate(ai, 0, (acc, v) -> acc + coalesce(v % 5, 0))
aggregate(ai, 0L, (acc, v) -> acc + coalesce(v % 5, 0), acc -> acc * 10)
zip_with(ai, aw, (x, y) -> concat(x, y))
map_filter(m, (k, v) -> v > 0)
transform_keys(m, (k, v) -> concat(k, '''', length(k)))
transform_values(m, (k, v) -> k || v)
map_zip_with(m, m, (k, a, b) -> coalesce(a, b))
array_sort(ai, (l, r) -> CASE WHEN l IS NULL THEN 1 WHEN r IS NULL THEN -1 WHEN l > r THEN -1 WHEN l < r THEN 1 ELSE 0 END)
transform(ai, x -> x IS NULL OR x IN (1, 2))
transform(aw, s -> s || '!')
transform(array(1, 2), a -> transform(array(10, 20), b -> a * b + k))
mask(s, lowerChar => 'q', upperChar => 'Q')
mask(str => s)
CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END
CASE WHEN o THEN 1 WHEN NOT o THEN 2.5 ELSE 3 END
CASE k WHEN NULL THEN 1 ELSE 2 END
CASE WHEN i > 0 THEN CASE WHEN o THEN 'a' ELSE 'b' END END
if(o, i, d)
nvl2(o, 1, 2.5)
decode(k, 0, 'zero', 1, 'one', 'many')
decode(k, NULL, 'none', 'some')
coalesce(i, c, d)
nvl(i, 0.5)
nullif(i, 1)
ifnull(s, w)
greatest(i, c)
least(s, w, 'm')
trim(s)
TRIM(BOTH 'a' FROM s)
trim(LEADING FROM s)
TRIM(TRAILING 'c' FROM s)
trim('a' FROM s)
btrim(s, 'ac')
ltrim('a', s)
rtrim('xyz', 'zx')
substring(s FROM 2 FOR 3)
substring(s, 2)
SUBSTRING(s FROM -2)
substr(s, 0, 2)
overlay(s PLACING '_' FROM 2)
OVERLAY(s PLACING 'O''k' FROM 2 FOR 1)
position('a' IN s)
POSITION('a', s, 2)
locate('a', s)
locate('', s, 3)
instr(s, 'b')
find_in_set('b', 'a,b,c')
left(s, 2)
right(s, 2)
split(s, ',')
split(s, '\\W+')
split(s, '', 3)
split_part(s, ',', -1)
replace(s, 'a')
replace(s, '''', '"')
translate(s, 'abc', 'x')
repeat(s, 2)
lpad(s, 5)
rpad(s, 5, '*')
concat_ws(',', s, aw)
concat_ws('''')
initcap(s)
ascii(s)
chr(65 + k)
char(65)
len(s)
length(x)
char_length(s)
bit_length(s)
reverse(ai)
format_string('%s|%d', s, k)
printf('%05.2f', d)
elt(1, s, w)
levenshtein(s, w)
levenshtein(s, w, 2)
soundex(s)
regexp_extract('a1b22', '([a-z])([0-9]+)', 2)
regexp_replace(s, '(\\w)', '<$1>')
regexp_extract_all('a1b22', r'\d+', 0)
regexp_count(s, 'a')
regexp_substr(s, '[a-z]')
get_json_object(j, '$.a')
from_json(j, 'a INT').a
from_json('{"A":1}', 'A INT')
json_array_length(j)
schema_of_json('{"B":1}')
to_number('12', '99')
to_char(12, '999')
log10(d)
log(d)
log(10, 1000)
log(2, 8)
ln(d)
log2(8)
log1p(k)
exp(k)
pow(2, k)
power(2, 0.5)
sqrt(k)
cbrt(k)
round(2.5)
round(-2.5)
round(c, 1)
round(c, -1)
bround(2.5)
ceil(c)
ceil(c, 1)
floor(-1.5)
floor(c, 1)
rint(2.5)
sign(c)
signum(d)
abs(c)
pmod(-7, 3)
mod(-7, 3)
factorial(5)
hex(255)
hex(s)
unhex('1F')
bin(5)
conv('ff', 16, 10)
degrees(1)
atan2(1, 2)
e()
pi()
width_bucket(5.3, 0.2, 10.6, 5)
shiftleft(1, 3)
shiftright(-8, 1)
shiftrightunsigned(-8, 1)
getbit(5, 0)
bit_count(7)
try_divide(1, 0)
try_add(2147483647, 1)
try_multiply(i, 2)
try_subtract(i, 1)
try_mod(7, 0)
positive(i)
negative(k)
isnan(d)
nanvl(d, 0)
hypot(3, 4)
array_contains(ai, 1)
array_position(ai, 3)
array_remove(ai, 3)
array_distinct(ai)
array_join(aw, '''', 'null')
array_max(ai)
array_repeat('x', 2)
arrays_overlap(ai, array(1))
arrays_zip(ai, aw)
flatten(array(ai, ai))
sequence(1, 5, 2)
slice(ai, 1, 2)
sort_array(ai, false)
size(ai)
cardinality(m)
array_compact(ai)
array_insert(ai, 1, 7)
array_append(ai, 7)
array_prepend(ai, 7)
array_except(ai, array(1))
array_union(ai, array(9))
map_keys(m)
map_entries(m)
map_from_arrays(array('a'), array(i))
map_concat(map('z', 1), map('y', 2))
str_to_map('a:1,b:2')
element_at(array(1, 2), -1)
hash(i, s)
xxhash64(s)
crc32(s)
md5(s)
sha1(s)
sha2(s, 256)
base64(x)
unbase64('YQ==')
encode(s, 'UTF-8')
decode(X'61', 'UTF-8')
url_encode(s)
parse_url('http://localhost/c?d=e', 'QUERY', 'd')
typeof(i)
typeof(1.5)
typeof(1 / 3)
typeof(INTERVAL 1 DAY 2 HOURS)
equal_null(i, k)
s COLLATE UTF8_LCASE = 'ABC'
'a' COLLATE UTF8_LCASE = 'A'
collation(s)
lower(s)
quote(s)
luhn_check('79927398713')
soundex('O''Brien')
try_to_number('1', '9')
to_binary('YQ==', 'base64')
try_url_decode('%41')
is_valid_utf8(s)
sentences('Hi there. Good.')
dayname(dt)
monthname(dt)
weekday(dt)
dayofweek(dt)
quarter(dt)
months_between(dt, DATE'2016-01-01')
months_between(dt, DATE'2016-01-01', false)
next_day(dt, 'MO')
add_months(DATE'2016-03-31', -1)
unix_date(dt)
date_from_unix_date(k)
timestamp_micros(n % 1000)
timestamp_millis(k)
timestamp_seconds(k)
make_timestamp(2016, 1, 2, 3, 4, 5.6)
make_timestamp_ntz(2016, 1, 2, 3, 4, 5.6)
CAST(make_interval(1, 2, 3, 4) AS STRING)
CAST(make_dt_interval(1, 2) AS STRING)
from_utc_timestamp(TIMESTAMP'2024-03-31 01:30:00', 'Europe/Berlin')
convert_timezone('UTC', 'Europe/Berlin', TIMESTAMP_NTZ'2024-03-31 01:30:00')
date_part('YEAR', dt)
