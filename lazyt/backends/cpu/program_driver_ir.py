"""The LLVM IR that runs a program for Python: bases become addresses in its table, then the pool runs its rows.

It is one module with thread_pool_ir.py, whose `@spread` and `@serial` it calls.
"""

from __future__ import annotations

CONTROL_FIELDS = 8
# From here on even a program of small rows lets other Python threads run meanwhile.
LONG_PROGRAM = 256


def _c_string(name: str, text: str) -> str:
    return f'@{name} = internal constant [{len(text) + 1} x i8] c"{text}\\00", align 1'


VALUES: dict[str, object] = {
    "LONG_PROGRAM": LONG_PROGRAM,
    "BUSY_TEXT": _c_string("busy.text", "run: this program runs in another thread"),
    "LIST_TEXT": _c_string("list.text", "launch: a list of %zd base addresses is required"),
    "ADDRESS_TEXT": _c_string("address.text", "run: -1 is no address"),
}

# control: program, nrows, table, patches, npatches, bases, running, nbases
DRIVER = """
; a program is running when its last field equals the epoch, which a fork moves on
@epoch = internal global i64 0, align 8
$BUSY_TEXT
$LIST_TEXT
$ADDRESS_TEXT
@_Py_NoneStruct = external global i8
@PyExc_RuntimeError = external global ptr
@PyExc_ValueError = external global ptr
@PyFloat_Type = external global i8

declare void @Py_IncRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i32 @PyObject_IsInstance(ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)

; table[slot] = bases[index] + offset
define internal void @patch(ptr %table, ptr %patches, i64 %n, ptr %bases) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %out
body:
  %at = getelementptr [3 x i64], ptr %patches, i64 %i
  %slot = load i64, ptr %at
  %index.at = getelementptr i64, ptr %at, i64 1
  %index = load i64, ptr %index.at
  %offset.at = getelementptr i64, ptr %at, i64 2
  %offset = load i64, ptr %offset.at
  %base.at = getelementptr i64, ptr %bases, i64 %index
  %base = load i64, ptr %base.at
  %address = add i64 %base, %offset
  %entry.at = getelementptr i64, ptr %table, i64 %slot
  store i64 %address, ptr %entry.at
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}

; whether some row has more than one chunk
define internal i1 @wide(ptr %rows, i64 %n) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %no
body:
  %row = getelementptr [5 x i64], ptr %rows, i64 %i
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %grain.at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain.at
  %next = add i64 %i, 1
  %over = icmp sgt i64 %units, %grain
  %grained = icmp sgt i64 %grain, 0
  %splits = and i1 %over, %grained
  br i1 %splits, label %yes, label %head
yes:
  ret i1 true
no:
  ret i1 false
}

define internal ptr @execute(ptr %control) nounwind {
entry:
  %running.at = getelementptr i64, ptr %control, i64 6
  %running = load i64, ptr %running.at
  %epoch = load i64, ptr @epoch
  %twice = icmp eq i64 %running, %epoch
  br i1 %twice, label %refuse, label %start
refuse:
  %error = load ptr, ptr @PyExc_RuntimeError
  call void @PyErr_SetString(ptr %error, ptr @busy.text)
  ret ptr null
start:
  store i64 %epoch, ptr %running.at
  %rows = load ptr, ptr %control
  %nrows.at = getelementptr i64, ptr %control, i64 1
  %nrows = load i64, ptr %nrows.at
  %table.at = getelementptr i64, ptr %control, i64 2
  %table = load ptr, ptr %table.at
  %patches.at = getelementptr i64, ptr %control, i64 3
  %patches = load ptr, ptr %patches.at
  %npatches.at = getelementptr i64, ptr %control, i64 4
  %npatches = load i64, ptr %npatches.at
  %bases.at = getelementptr i64, ptr %control, i64 5
  %bases = load ptr, ptr %bases.at
  call void @patch(ptr %table, ptr %patches, i64 %npatches, ptr %bases)
  %float = call i64 @float_reset()
  %wide = call i1 @wide(ptr %rows, i64 %nrows)
  %many = icmp sge i64 %nrows, $LONG_PROGRAM
  %long = or i1 %wide, %many
  br i1 %long, label %free, label %held
held:
  call void @serial(ptr %rows, i64 %nrows, ptr %table)
  call void @float_restore(i64 %float)
  store i64 0, ptr %running.at
  br label %out
free:
  %thread = call ptr @PyEval_SaveThread()
  br i1 %wide, label %pooled, label %alone
pooled:
  call void @spread(ptr %rows, i64 %nrows, ptr %table)
  br label %ran
alone:
  call void @serial(ptr %rows, i64 %nrows, ptr %table)
  br label %ran
ran:
  call void @float_restore(i64 %float)
  call void @PyEval_RestoreThread(ptr %thread)
  ; NOTE: after the interpreter lock is back, which is what makes a plain store enough
  store i64 0, ptr %running.at
  br label %out
out:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

; the 64-bit value of a Python int in *%out; false with an exception set if there is none
define internal i1 @word(ptr %object, ptr %out) nounwind {
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  store i64 %value, ptr %out
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %yes
doubt:
  %error = call ptr @PyErr_Occurred()
  %quiet = icmp eq ptr %error, null
  br i1 %quiet, label %complain, label %no
complain:
  %kind = load ptr, ptr @PyExc_ValueError
  call void @PyErr_SetString(ptr %kind, ptr @address.text)
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}

; the 64-bit value of any Python int in *%out, or the bits of a float; false with an exception set if it has none
define internal i1 @number(ptr %object, ptr %out) nounwind {
  %is.float = call i32 @PyObject_IsInstance(ptr %object, ptr @PyFloat_Type)
  %floats = icmp eq i32 %is.float, 1
  br i1 %floats, label %float, label %int
float:
  %real = call double @PyFloat_AsDouble(ptr %object)
  store double %real, ptr %out
  br label %yes
int:
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  store i64 %value, ptr %out
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %yes
doubt:
  %error = call ptr @PyErr_Occurred()
  %quiet = icmp eq ptr %error, null
  br i1 %quiet, label %yes, label %no
no:
  ret i1 false
yes:
  ret i1 true
}

; METH_O: run(address of the control block)
define ptr @${P}_run(ptr %self, ptr %address) nounwind {
  %slot = alloca ptr, align 8
  %ok = call i1 @word(ptr %address, ptr %slot)
  br i1 %ok, label %go, label %fail
fail:
  ret ptr null
go:
  %control = load ptr, ptr %slot
  %r = call ptr @execute(ptr %control)
  ret ptr %r
}

; METH_NOARGS: run(); self is the address of the control block
define ptr @${P}_run_bound(ptr %self, ptr %unused) nounwind {
  %r = call ptr @${P}_run(ptr null, ptr %self)
  ret ptr %r
}

; METH_O: launch(list of base addresses); self is the address of the control block
define ptr @${P}_launch(ptr %self, ptr %list) nounwind {
entry:
  %slot = alloca ptr, align 8
  %ok = call i1 @word(ptr %self, ptr %slot)
  br i1 %ok, label %measure, label %fail
measure:
  %control = load ptr, ptr %slot
  %bases.at = getelementptr i64, ptr %control, i64 5
  %bases = load ptr, ptr %bases.at
  %n.at = getelementptr i64, ptr %control, i64 7
  %n = load i64, ptr %n.at
  ; -1 with an exception, which the one below replaces, if it is no list
  %given = call i64 @PyList_Size(ptr %list)
  %fits = icmp eq i64 %given, %n
  br i1 %fits, label %head, label %refuse
refuse:
  %kind = load ptr, ptr @PyExc_ValueError
  %null = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %kind, ptr @list.text, i64 %n)
  br label %fail
head:
  %i = phi i64 [ 0, %measure ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %go
body:
  %item = call ptr @PyList_GetItem(ptr %list, i64 %i)
  %base.at = getelementptr i64, ptr %bases, i64 %i
  %read = call i1 @number(ptr %item, ptr %base.at)
  %next = add i64 %i, 1
  br i1 %read, label %head, label %fail
go:
  %r = call ptr @execute(ptr %control)
  ret ptr %r
fail:
  ret ptr null
}
"""
