-- Steps that must not be made twice. A client repeats a step whose answer was lost; under `made:PLACE`, a place that it
-- lends to one call at a time, stands the mark of the last such step, and its answer. They go by themselves.
local MADE, MARK, MEMORY = P .. 'made:' .. ARGV[2], ARGV[3], ARGV[4]

-- Return the answer of this very step, if it has been made; else nil.
local function made_before()
  local value = call('GET', MADE)
  if value and string.sub(value, 1, #MARK) == MARK then return string.sub(value, #MARK + 1) end
  return nil
end

local function remember_made(answer) call('SET', MADE, MARK .. answer, 'PX', MEMORY) end
