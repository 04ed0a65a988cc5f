"""The scripts of the registry: each is one round trip and one atomic change, as those in scripts.py.

pombo:entry:<kind>:<id>            hash    version, tenant, fields
pombo:entries:<kind>               zset    ids of a kind, all with score 0, so that they are in order
pombo:entries:<kind>:<tenant>      zset    the same, of one tenant's
pombo:committed:<version>          string  a commit that was made within the last minute
"""

_FIND = """
local function find(kind, id)
  local found = redis.call('HMGET', 'pombo:entry:' .. kind .. ':' .. id, 'version', 'tenant', 'fields')
  return found[1] and {id, found[1], found[2] or '', found[3] or ''}
end
"""

ENTRIES = (
    _FIND
    + """
local found = {}
for at = 1, #ARGV, 2 do
  found[#found + 1] = find(ARGV[at], ARGV[at + 1])
end
return found
"""
)
"""ARGV: kind and id of each. {id, version, tenant, fields} of each, or false."""

ENTRY_PAGE = (
    _FIND
    + """
local kind, set, after, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local found = {}
repeat
  local ids = redis.call('ZRANGEBYLEX', set, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, limit - #found)
  for _, id in ipairs(ids) do
    local entry = find(kind, id)
    if entry then
      found[#found + 1] = entry
    else  -- an operator deleted it (DEL)
      redis.call('ZREM', set, id)
    end
    after = id
  end
until #ids == 0 or #found == limit
return found
"""
)
"""ARGV: the kind, the sorted set, the last id of the page before ('' none), how many. As ENTRIES."""

COMMIT_ENTRIES = """
local version = ARGV[1]
local committed = 'pombo:committed:' .. version
-- This same commit was sent before, and its answer was lost.
if redis.call('EXISTS', committed) == 1 then
  return 1
end
local function name(at)
  return 'pombo:entry:' .. ARGV[at] .. ':' .. ARGV[at + 1]
end
for at = 2, #ARGV, 5 do
  if (redis.call('HGET', name(at), 'version') or '') ~= ARGV[at + 2] then
    return 0
  end
end
redis.call('SET', committed, 1, 'PX', 60000)
for at = 2, #ARGV, 5 do
  local kind, id, _, tenant, fields = unpack(ARGV, at, at + 4)
  local all = 'pombo:entries:' .. kind
  local owner = redis.call('HGET', name(at), 'tenant')
  if owner and (owner ~= tenant or fields == '') then
    redis.call('ZREM', all .. ':' .. owner, id)
  end
  if fields == '' then
    redis.call('DEL', name(at))
    redis.call('ZREM', all, id)
  else
    redis.call('HSET', name(at), 'version', version, 'tenant', tenant, 'fields', fields)
    redis.call('ZADD', all, 0, id)
    redis.call('ZADD', all .. ':' .. tenant, 0, id)
  end
end
return 1
"""
"""ARGV: the new version, which no other commit has; then of each write 5 values: kind, id, the version it must have (''
it must not exist), tenant, fields ('' to delete it). 1, or 0 if one had another version. Its first write is the SET,
which Redis refuses if it is out of memory or a replica.
"""
