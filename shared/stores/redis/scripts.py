"""The scripts of the Redis store: each is one round trip and one atomic change.

    pombo:record:<key>            hash  version, body, what the indexes need, and a field for each receipt with an echo
    pombo:unechoed:<id hash>      hash  the receipts without one, by kind
    pombo:state:<state>           zset  keys of open and dead records, by the time since which they wait
    pombo:turn:<turn id>          zset  places in the turn, each with its key, all with score 0: they are in order
    pombo:sweep                   zset  keys of open records, by sweep_at
    pombo:tenant:<tenant>         zset  keys of its records, by received_at; 40 days or longer from its last write
    pombo:of_conversation:<id>    zset  the same of a conversation
    pombo:conversation:<id>       hash  version and body of a conversation, an alias or a lane; of the first also tenant
                                        and last_message_at, '' for the others
    pombo:conversations:<tenant>  zset  ids of its conversations, by last_message_at
    pombo:correlation:<id>        zset  keys of the records of one event, by the moment they expire (or never)
    pombo:id:<id hash>            zset  the same, by the hash of the provider's id
    pombo:listed:<mark>           zset  keys of the records with this mark, by the moment they expire (or never)
    pombo:marks:<id>              hash  version, and the marks of one sender or backend, a field for each
    pombo:counters:<process>      hash  flushed_at, and what the process has counted
    pombo:counters                zset  processes, by flushed_at
    pombo:troubled                zset  ids of troubled marks, all with score 0, so that they are in order

Redis runs one script at a time, so a script needs no lock and has no race. Redis does not roll back, so a script makes
all its checks before its first write. That write is an HSET, which Redis refuses if it is out of memory, a replica, or
unable to write its file; after it Redis refuses no write of the same script.

A score is a double and holds whole numbers up to 2^53 exactly: microseconds from 1970 to the year 2255. `version` is a
random number, new with every write and with every receipt that adds something, also without an echo. So the version
alone tells whether a decision is still valid. The keys are computed, not declared: no Redis Cluster.
"""

from shared.stores.codec import TROUBLES

_SHARED = """
local function name(key)
  return 'pombo:record:' .. key
end

-- A receipt is '<microseconds>:<code>'. The earlier of two is kept; at equal times the lower code, no code first.
local function earlier(new, old)
  local new_at, new_code = string.match(new, '^(.*):(.*)$')
  local old_at, old_code = string.match(old, '^(.*):(.*)$')
  if new_at ~= old_at then
    return tonumber(new_at) < tonumber(old_at)
  end
  return (tonumber(new_code) or -1) < (tonumber(old_code) or -1)
end

-- All fields of the record, and the receipts without an echo for its id; false if there is no record.
local function find(key)
  local fields = redis.call('HGETALL', name(key))
  if #fields == 0 then
    return false
  end
  local unechoed = {}
  for i = 1, #fields, 2 do
    if fields[i] == 'id_hash' and fields[i + 1] ~= '' then
      unechoed = redis.call('HGETALL', 'pombo:unechoed:' .. fields[i + 1])
    end
  end
  return {fields, unechoed}
end

-- A record that Redis expired or an operator deleted (DEL) leaves these behind.
local function forget(key)
  redis.call('ZREM', 'pombo:sweep', key)
  for _, state in ipairs({'pending', 'leased', 'in_doubt', 'dead'}) do
    redis.call('ZREM', 'pombo:state:' .. state, key)
  end
end
"""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

_INDEXED = (
    _SHARED
    + _NOW
    + """
-- An index lives as long as the last record it names.
local function live_with_the_last(index)
  local last = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')
  if last[2] == 'inf' then
    redis.call('PERSIST', index)
  elseif last[2] then
    redis.call('PEXPIREAT', index, last[2])
  end
end

local function index(prefix, value, old_value, key, expires)
  if old_value and old_value ~= '' and old_value ~= value then
    redis.call('ZREM', prefix .. old_value, key)
    live_with_the_last(prefix .. old_value)
  end
  if value ~= '' then
    redis.call('ZREMRANGEBYSCORE', prefix .. value, '-inf', now)
    redis.call('ZADD', prefix .. value, expires, key)
    live_with_the_last(prefix .. value)
  end
end

local function mark_refused(key)
  local old = redis.call('HGET', name(key), 'mark')
  redis.call('HSET', name(key), 'mark', 'refused')
  local life = redis.call('PTTL', name(key))
  index('pombo:listed:', 'refused', old, key, life < 0 and 'inf' or now + life)
end
"""
)

COMMIT = (
    _INDEXED
    + """
local function keep(set, life)
  local least = math.max(tonumber(life) or 0, 40 * 86400000)
  if redis.call('PTTL', set) < least then
    redis.call('PEXPIRE', set, least)
  end
end

-- Expired records stay in the set of their tenant or conversation until a write or a page meets them. Each new record
-- looks at two members by chance, so the set holds at most about as many expired ones as others.
local function join(prefix, owner, old_owner, received_at, key, life)
  if old_owner and old_owner ~= owner then
    redis.call('ZREM', prefix .. old_owner, key)
  end
  if not owner then
    return
  end
  local set = prefix .. owner
  if old_owner ~= owner then
    redis.call('ZADD', set, received_at, key)
    for _, other in ipairs(redis.call('ZRANDMEMBER', set, 2)) do
      if redis.call('EXISTS', name(other)) == 0 then
        redis.call('ZREM', set, other)
      end
    end
  end
  keep(set, life)
end

local function named(conversation)
  return conversation ~= '' and conversation
end

local function take_place(turn_id, place, old_place, key)
  local turn = 'pombo:turn:' .. turn_id
  if old_place and old_place ~= '' and old_place ~= place then
    redis.call('ZREM', turn, old_place .. ' ' .. key)
  end
  if place ~= '' then
    redis.call('ZADD', turn, 0, place .. ' ' .. key)
  end
end

local function write(version, at)
  local key, body, state, id_hash, correlation_id, tenant, received_at, waits_since, sweep_at, life, mark, turn_id,
      place, conversation = unpack(ARGV, at, at + 13)
  local old = redis.call('HMGET', name(key), 'state', 'id_hash', 'correlation_id', 'mark', 'tenant', 'place',
                         'conversation')
  -- The provider's id may be new, and a failed receipt without an echo may have waited for it.
  if mark == '' and id_hash ~= '' and redis.call('HEXISTS', 'pombo:unechoed:' .. id_hash, 'failed') == 1 then
    mark = 'refused'
  end
  redis.call('HSET', name(key), 'version', version, 'body', body, 'mark', mark,
             'state', state, 'id_hash', id_hash, 'correlation_id', correlation_id, 'tenant', tenant, 'place', place,
             'conversation', conversation)
  take_place(turn_id, place, old[6], key)
  local expires = 'inf'
  if life ~= '' then
    expires = now + life
    redis.call('PEXPIREAT', name(key), expires)
  elseif old[1] then
    redis.call('PERSIST', name(key))
  end
  if old[1] and old[1] ~= state then
    redis.call('ZREM', 'pombo:state:' .. old[1], key)
  end
  if waits_since ~= '' then
    redis.call('ZADD', 'pombo:state:' .. state, waits_since, key)
  end
  join('pombo:tenant:', tenant, old[5], received_at, key, life)
  join('pombo:of_conversation:', named(conversation), named(old[7]), received_at, key, life)
  if sweep_at ~= '' then
    redis.call('ZADD', 'pombo:sweep', sweep_at, key)
  elseif old[1] then
    redis.call('ZREM', 'pombo:sweep', key)
  end
  index('pombo:correlation:', correlation_id, old[3], key, expires)
  index('pombo:id:', id_hash, old[2], key, expires)
  index('pombo:listed:', mark, old[4], key, expires)
end

local function write_entry(version, at)
  local id, _, body, tenant, last_message_at = unpack(ARGV, at, at + 4)
  local entry = 'pombo:conversation:' .. id
  local old_tenant = redis.call('HGET', entry, 'tenant')
  redis.call('HSET', entry, 'version', version, 'body', body, 'tenant', tenant, 'last_message_at', last_message_at)
  if old_tenant and (old_tenant ~= tenant or last_message_at == '') then
    redis.call('ZREM', 'pombo:conversations:' .. old_tenant, id)
  end
  if last_message_at ~= '' then
    redis.call('ZADD', 'pombo:conversations:' .. tenant, last_message_at, id)
  end
end

local key, expected, version, writes, records = unpack(ARGV, 1, 5)
local entries = 6 + 14 * records
local stored = redis.call('HGET', name(key), 'version') or ''
-- Its own version: this same commit was sent before, and its answer was lost.
local is_made, has_moved = stored == version, false
for at = entries, #ARGV, 5 do
  local its = redis.call('HGET', 'pombo:conversation:' .. ARGV[at], 'version') or ''
  is_made, has_moved = is_made or its == version, has_moved or its ~= ARGV[at + 1]
end
if not is_made then
  if stored ~= expected then
    return {0, find(key)}
  elseif has_moved then
    return {2, false}
  end
  for at = 6, entries - 1, 14 do
    if (at == 6 and writes == '1') or redis.call('EXISTS', name(ARGV[at])) == 0 then
      write(version, at)
    end
  end
  for at = entries, #ARGV, 5 do
    write_entry(version, at)
  end
end
return {1, writes == '1' and redis.call('EXISTS', 'pombo:unechoed:' .. ARGV[9]) or 0}
"""
)
"""ARGV: key, the version it must have ('': it must not exist), the new version, whether the first record is its change;
how many records follow, 14 values each, which are created if they do not exist; then entries of conversations, each
with its id, the version it must have, body, tenant and last_message_at. {1, whether its id has receipts without an
echo}, {0, the record that is stored}, or {2, nothing} if an entry does not have its version.
"""

IS_MADE, HAS_MOVED = 1, 2
"""The results of a commit; 0: the record is another one."""

FIND = _SHARED + "return find(ARGV[1])"

IN_TURN = (
    _SHARED
    + """
local turn, first, beyond = 'pombo:turn:' .. ARGV[1], ARGV[2], ARGV[3]
while true do
  local found, gone = {}, false
  for _, place in ipairs(redis.call('ZREVRANGEBYLEX', turn, '(' .. beyond, '[' .. first, 'LIMIT', 0, ARGV[4])) do
    local record = find(string.match(place, '(%S+)$'))
    if record then
      found[#found + 1] = record
    else
      redis.call('ZREM', turn, place)  -- an operator deleted it (DEL)
      gone = true
    end
  end
  if not gone then
    return found
  end
end
"""
)
"""ARGV: the id of the turn, the first place, the place before which the last two are asked for."""

FIND_ALL = (
    _SHARED
    + """
local found = {}
for _, key in ipairs(redis.call('ZRANGE', ARGV[1], 0, -1)) do
  found[#found + 1] = find(key) or nil
end
return found
"""
)
"""ARGV: the index."""

NOTE = (
    _INDEXED
    + """
local key, field, receipt, version, refuses = unpack(ARGV)
if redis.call('EXISTS', name(key)) == 0 then
  return 0
end
local old = redis.call('HGET', name(key), field)
if not old or earlier(receipt, old) then
  redis.call('HSET', name(key), field, receipt, 'version', version)
end
if refuses == '1' then
  mark_refused(key)
end
return 1
"""
)

NOTE_UNECHOED = (
    _INDEXED
    + """
local id_hash, kind, receipt, version, life = unpack(ARGV)
local unechoed = 'pombo:unechoed:' .. id_hash
local old = redis.call('HGET', unechoed, kind)
local is_news = not old or earlier(receipt, old)
if is_news then
  redis.call('HSET', unechoed, kind, receipt)
end
for _, key in ipairs(redis.call('ZRANGE', 'pombo:id:' .. id_hash, 0, -1)) do
  if redis.call('EXISTS', name(key)) == 1 then
    if is_news then
      redis.call('HSET', name(key), 'version', version)
    end
    if kind == 'failed' then
      mark_refused(key)
    end
  end
end
redis.call('PEXPIRE', unechoed, life)
"""
)

OVERDUE = (
    _SHARED
    + """
local before, limit = ARGV[1], tonumber(ARGV[2])
local keys, page = {}, nil
repeat
  page = redis.call('ZRANGEBYSCORE', 'pombo:sweep', '-inf', before, 'LIMIT', #keys, limit - #keys)
  for _, key in ipairs(page) do
    if redis.call('EXISTS', name(key)) == 1 then
      keys[#keys + 1] = key
    else
      forget(key)
    end
  end
until #page == 0 or #keys == limit
return keys
"""
)

BACKLOG = (
    _SHARED
    + _NOW
    + """
local function oldest_in(state)
  local oldest, gone = nil, false
  repeat
    oldest = redis.call('ZRANGE', 'pombo:state:' .. state, 0, 0, 'WITHSCORES')
    gone = #oldest > 0 and redis.call('EXISTS', name(oldest[1])) == 0
    if gone then
      forget(oldest[1])
    end
  until not gone
  return oldest[2] or false
end
local pending, dead = oldest_in('pending'), oldest_in('dead')
local counts = {}
for i, state in ipairs(ARGV) do
  counts[i] = redis.call('ZCARD', 'pombo:state:' .. state)
end
-- A key removed by a DEL counts until a listing finds it.
return {pending, dead, counts, redis.call('ZCOUNT', 'pombo:listed:refused', '(' .. now, '+inf')}
"""
)
"""ARGV: the states to count. {since when the oldest pending record waits, the same of the oldest dead one, counts, how
many a failed receipt marked}.
"""

_IS_TROUBLED = f"""
local function is_troubled(id)
  for _, mark in ipairs(redis.call('HMGET', 'pombo:marks:' .. id, {", ".join(f"'{name}'" for name in TROUBLES)})) do
    if mark then
      return true
    end
  end
  return false
end
"""

CHANGE_MARKS = (
    _IS_TROUBLED
    + """
local id, expected, version = unpack(ARGV, 1, 3)
local marks = 'pombo:marks:' .. id
local stored = redis.call('HGET', marks, 'version') or ''
-- Its own version: this same change was sent before, and its answer was lost.
if stored ~= version then
  if stored ~= expected then
    return {0, redis.call('HGETALL', marks)}
  end
  redis.call('HSET', marks, 'version', version)
  for at = 4, #ARGV, 2 do
    if ARGV[at + 1] ~= '' then
      redis.call('HSET', marks, ARGV[at], ARGV[at + 1])
    else
      redis.call('HDEL', marks, ARGV[at])
    end
  end
  if is_troubled(id) then
    redis.call('ZADD', 'pombo:troubled', 0, id)
  else
    redis.call('ZREM', 'pombo:troubled', id)
  end
end
return {1, {}}
"""
)
"""ARGV: the id, the version it must have ('': it must not exist), the new version; then the marks that differ, each
by name and text ('' if removed). {1, nothing} or {0, what is stored}.
"""

NOTE_BLOCK = """
local id, version, block = unpack(ARGV)
redis.call('HSET', 'pombo:marks:' .. id, 'version', version, 'receipt_block', block)
redis.call('ZADD', 'pombo:troubled', 0, id)
"""

TROUBLED = (
    _IS_TROUBLED
    + """
local after, limit = ARGV[1], tonumber(ARGV[2])
local found = {}
repeat
  local ids = redis.call('ZRANGEBYLEX', 'pombo:troubled', after == '' and '-' or '(' .. after, '+',
                         'LIMIT', 0, limit - #found)
  for _, id in ipairs(ids) do
    if is_troubled(id) then
      found[#found + 1] = id
    else  -- an older Pombo changed them, or an operator deleted them (DEL)
      redis.call('ZREM', 'pombo:troubled', id)
    end
    after = id
  end
until #ids == 0 or #found == limit
return found
"""
)
"""ARGV: the last id of the page before ('' none), how many."""

_BEHIND = """
-- How many members there are up to this one, sorted by score, then by key; without a score none.
local function behind(set, score, key)
  local first, beyond = 0, score and redis.call('ZCARD', set) or 0
  while first < beyond do
    local middle = math.floor((first + beyond) / 2)
    local at = redis.call('ZRANGE', set, middle, middle, 'WITHSCORES')
    local its = tonumber(at[2])
    if its < score or (its == score and at[1] <= key) then
      first = middle + 1
    else
      beyond = middle
    end
  end
  return first
end
"""

LISTED = (
    _SHARED
    + _BEHIND
    + """
local set, score, key, limit = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local first = behind(set, score, key)
local page = redis.call('ZRANGE', set, first, first + limit - 1, 'WITHSCORES')
local records = {}
for i = 1, #page, 2 do
  local record = find(page[i])
  if record then
    records[#records + 1] = record
  else
    forget(page[i])
    redis.call('ZREM', set, page[i])
  end
end
return {records, #page == 2 * limit and {page[#page], page[#page - 1]} or {}}
"""
)
"""ARGV: the sorted set, score and key of the end of the page before ('' none), how many. {records, this page's end}."""

_AHEAD = """
-- How many members there are down to this one, sorted by score, then by key, the greatest first; at least `first`.
local function ahead(set, score, key, first)
  local beyond = score and redis.call('ZCARD', set) or 0
  while first < beyond do
    local middle = math.floor((first + beyond) / 2)
    local at = redis.call('ZREVRANGE', set, middle, middle, 'WITHSCORES')
    local its = tonumber(at[2])
    if its > score or (its == score and at[1] >= key) then
      first = middle + 1
    else
      beyond = middle
    end
  end
  return first
end
"""

HISTORY = (
    _SHARED
    + _AHEAD
    + """
local set, since, until_, score, key, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local first = ahead(set, score, key, redis.call('ZCOUNT', set, until_, '+inf'))
local page = redis.call('ZREVRANGE', set, first, first + limit - 1, 'WITHSCORES')
local records, last = {}, {}
for i = 1, #page, 2 do
  if tonumber(page[i + 1]) < tonumber(since) then
    return {records, {}}
  end
  local record = find(page[i])
  if record then
    records[#records + 1] = record
  else
    redis.call('ZREM', set, page[i])
  end
  last = {page[i + 1], page[i]}
end
return {records, #page == 2 * limit and last or {}}
"""
)
"""ARGV: the sorted set, the first and the last score (excluded), score and key of the end of the page before ('' none),
how many. {records, this page's end}.
"""

LOAD = (
    _SHARED
    + _BEHIND
    + """
local set, tenant, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local score, key, limit = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

-- The codec writes these three in a row. To decode a large body would occupy the server for a millisecond.
local function kind_and_tenant(key)
  local body = redis.call('HGET', name(key), 'body') or ''
  local kind, owner = string.match(body, '"kind":"(%l+)","provider":"[^"]*","tenant":"([^"]*)"')
  if kind then
    return kind, owner
  end
  local is_whole, plain = pcall(cjson.decode, body)
  if is_whole and type(plain) == 'table' then
    return plain.kind, plain.tenant
  end
end

local first = behind(set, score, key)
local page = redis.call('ZRANGE', set, first, first + limit - 1, 'WITHSCORES')
local events, messages, later, oldest = 0, 0, 0, false
for i = 1, #page, 2 do
  local kind, owner = kind_and_tenant(page[i])
  if kind and (tenant == '' or owner == tenant) then
    events = events + (kind == 'inbound' and 1 or 0)
    messages = messages + (kind == 'outbound' and 1 or 0)
    later = later + (tonumber(page[i + 1]) > now and 1 or 0)
    oldest = oldest or page[i + 1]
  end
end
return {events, messages, later, oldest, #page == 2 * limit and {page[#page], page[#page - 1]} or {}}
"""
)
"""ARGV: the sorted set of a state, the tenant ('' all), the time; score and key of the last page's end ('' none);
how many. {events, messages, how many wait for a later time, since when the oldest waits, this page's end}.
"""

KEEP_COUNTERS = """
local process, flushed_at, counts, life, before = unpack(ARGV)
redis.call('HSET', 'pombo:counters:' .. process, 'flushed_at', flushed_at, 'counts', counts)
redis.call('PEXPIRE', 'pombo:counters:' .. process, life)
redis.call('ZADD', 'pombo:counters', flushed_at, process)
redis.call('ZREMRANGEBYSCORE', 'pombo:counters', '-inf', '(' .. before)
"""
"""ARGV: the process, the time, its counts, milliseconds that they are kept, the time before which others are gone."""

RECENT_COUNTERS = """
local since, most = ARGV[1], tonumber(ARGV[2])
local found = {}
for _, process in ipairs(redis.call('ZREVRANGEBYSCORE', 'pombo:counters', '+inf', since, 'LIMIT', 0, most)) do
  local counts = redis.call('HGET', 'pombo:counters:' .. process, 'counts')
  if counts then
    found[#found + 1] = {process, redis.call('HGET', 'pombo:counters:' .. process, 'flushed_at'), counts}
  end
end
return found
"""
"""ARGV: since when, how many. {process, time, counts} of each, the newest first."""

_ENTRY = """
-- {id, version, body} of a conversation, an alias or a lane; false if there is none. What is missing is ''.
local function entry(id)
  local its = redis.call('HMGET', 'pombo:conversation:' .. id, 'version', 'body')
  if its[1] or its[2] then
    return {id, its[1] or '', its[2] or ''}
  end
  return false
end
"""

CONVERSATION_ENTRIES = (
    _ENTRY
    + """
local found = {}
for _, id in ipairs(ARGV) do
  found[#found + 1] = entry(id) or nil
end
return found
"""
)
"""ARGV: ids. {id, version, body} of each that exists."""

CONVERSATIONS = (
    _ENTRY
    + _AHEAD
    + """
local set, score, last, limit = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local first = ahead(set, score, last, 0)
local page = redis.call('ZREVRANGE', set, first, first + limit - 1, 'WITHSCORES')
local found = {}
for i = 1, #page, 2 do
  local its = entry(page[i])
  if its then
    found[#found + 1] = its
  else  -- an operator deleted it (DEL)
    redis.call('ZREM', set, page[i])
  end
end
return {found, #page == 2 * limit and {page[#page], page[#page - 1]} or {}}
"""
)
"""ARGV: the sorted set, score and id of the end of the page before ('' none), how many. {{id, version, body} of each,
this page's end}.
"""
