set size 500 10000
set number 500
set transactions 1000
set subdirectories 10
run
