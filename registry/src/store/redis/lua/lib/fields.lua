-- Library in front of the scripts that write fields of a conversation.
-- fields: what the script writes at its end by one command: a call costs more than a field.
local fields = {}

-- set: notes a field and its value.
local function set(field, value)
  fields[#fields + 1], fields[#fields + 2] = field, value
end

