-- Library in front of the scripts that remove blobs which nothing names.
-- is_unused: whether a blob is there that nothing names or holds.
local function is_unused(blob, names, holds)
  return redis.call('HEXISTS', blob, 'bytes') == 1
    and redis.call('ZCARD', names) == 0 and redis.call('ZCARD', holds) == 0
end

-- remove_unused: removes such a blob once all names are `known`. Returns whether it did.
local function remove_unused(blob, names, holds, blobs_due, counts, id, known)
  if known ~= '1' or not is_unused(blob, names, holds) then return false end
  local counted = redis.call('HGET', blob, 'counted')
  if counted then redis.call('HINCRBY', counts, 'bytes', 0 - counted) end
  redis.call('UNLINK', blob)
  redis.call('ZREM', blobs_due, id)
  return true
end

